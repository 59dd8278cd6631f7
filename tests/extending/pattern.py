"""Follows the checklist for a fusion pattern: two SoftMax, one behind the other."""
import os
import sys

from scratch import run

NAME, MOST = "A fusion pattern", 3
TESTS = ("test_patterns",)
TABLE = '''
/* SoftMax -> SoftMax. */
static const pat_node_t softmax_twice[] = {
    {.role = "softmax", .ops = OP_SOFTMAX, .edge = PAT_ANCHOR},
    {.role = "again", .ops = OP_SOFTMAX, .edge = PAT_BELOW, .min = 1, .max = 1},
};
const pattern_t pattern_softmax_twice =
    PAT_ROW("softmax-twice", FAMILY_GENERAL, softmax_twice, NULL);
'''
BUILDER = '''@pattern("softmax-twice", 2)
def softmax_twice(g, nomatch):
    x = softmax(g, g.input("f32", [4, 33]))
    # SoftMax+ReLU, SoftMax
    if nomatch:
        x = g.op("ReLU", [x], "f32")
    return g.output(softmax(g, x))


def graphs():'''


def edit(todo):
    table = "src/patterns/table_eltwise.c"
    todo.write(table, todo.scratch.read(table) + TABLE)
    todo.edit("src/patterns/patterns.def",
              ("SINTER_PATTERN(softmax)\n",
               "SINTER_PATTERN(softmax_twice)\nSINTER_PATTERN(softmax)\n"))
    todo.edit("tools/dev/make_patterns.py", ("def graphs():", BUILDER))


def try_out(scratch, runner):
    for name, n in (("softmax-twice", 1), ("softmax-twice.nomatch", 2)):
        path = os.path.join(scratch.root, "models", "patterns", name + ".json")
        runner("--mode=C", f"--expected-n-partitions={n}", f"--case={path}")
    assert "softmax-twice.nomatch" in scratch.read("tests/lists/patterns.list")


def generate(scratch):
    run([sys.executable, "-B", os.path.join(scratch.root, "tools", "dev", "make_patterns.py")])
