"""The parts of tools/graph_report.py."""
