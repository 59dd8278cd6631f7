#!/usr/bin/env python3
"""Runs programs of a build on an emulated machine with AVX-512: Bochs, a Linux kernel, and an
initramfs of the programs, their libraries and the project's models and lists.

    tools/dev/emulate_cpu.py --cpu=icelake build/release/tests/test_emulated test_xsmm
    tools/dev/emulate_cpu.py --cpu=skylake \
        'build/release/graph_runner --batch=tests/lists/layers.list'

The machine begins in two or three minutes and then does some ten million instructions a second: a
second on a real machine takes a quarter of an hour. It has one processor; Linux clears what Bochs
2.7 describes wrongly (sizes of the compacted and the PKRU state). Programs bind their symbols at
once, because the loader's way to do that later needs the compacted state.

Exit status: 0 if all programs ended with 0 or 77 (skipped), 1 if not, 2 without Bochs.
"""
import argparse
import glob
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MODELS = {"skylake": "corei7_skylake_x", "icelake": "corei7_icelake_u"}
PACKAGES = ["bochs", "bochs-term", "busybox-static", "cpio", "isolinux", "syslinux-common",
            "xorriso"]
KERNEL = "linux-image-cloud-amd64"
OPTIONS = ("console=ttyS0,115200 quiet mitigations=off nokaslr nopcid noinvpcid "
           "clearcpuid=pku,ospke,xsaves,xsavec,umip,fsrm,erms")
BOCHS = """\
display_library: term
romimage: file={share}/bochs/BIOS-bochs-latest
vgaromimage: file={share}/bochs/VGABIOS-lgpl-latest
cpu: model={model}, count=1, ips=200000000, reset_on_triple_fault=0, ignore_bad_msrs=1
memory: guest={memory}, host={memory}
ata0-master: type=cdrom, path=boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=serial.txt
sound: driver=dummy
log: bochs.log
panic: action=fatal
"""
INIT = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox --install -s /bin
export PATH=/bin LD_BIND_NOW=1 OMP_WAIT_POLICY=passive {environment}
mount -t proc proc /proc
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
cd {root}
"""
RUN = """\
echo "==== "{name}
{command} >/out 2>&1
status=$?
tail -n 20 /out | cut -c 1-300
echo "==== status $status"
"""


def install():
    missing = [p for p in PACKAGES
               if subprocess.run(["dpkg", "-s", p], capture_output=True).returncode]
    if missing:
        subprocess.run(["apt-get", "install", "-y", "-qq", *missing], stdout=subprocess.DEVNULL)
    return shutil.which("bochs") and shutil.which("xorriso")


def fetch_kernel(folder):
    """The kernel's image, unpacked from its package, which is not installed."""
    name = re.search(r"Depends: (\S+)", subprocess.run(
        ["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=True).stdout)[1]
    subprocess.run(["apt-get", "download", "-qq", name], cwd=folder, check=True)
    package = glob.glob(os.path.join(folder, "*.deb"))[0]
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return glob.glob(os.path.join(folder, "boot/vmlinuz-*"))[0]


def copy(path, tree):
    target = tree + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy(os.path.realpath(path), target)


def make_tree(tree, commands, environment):
    copy_of = {}
    for words in commands:
        program = os.path.abspath(words[0])
        copy(program, tree)
        subprocess.run(["strip", tree + program], check=False)
        copy_of[words[0]] = program
        libraries = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+) \(", libraries):
            copy(library, tree)
    for folder in ("models", "tests/lists"):
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(tree + ROOT, folder))
    copy(shutil.which("busybox"), tree)
    os.makedirs(os.path.join(tree, "bin"), exist_ok=True)
    shutil.copy(shutil.which("busybox"), os.path.join(tree, "bin/busybox"))
    with open(os.path.join(tree, "init"), "w", encoding="utf-8") as f:
        f.write(INIT.format(environment=" ".join(map(shlex.quote, environment)), root=ROOT))
        for words in commands:
            command = shlex.join([copy_of[words[0]], *words[1:]])
            f.write(RUN.format(name=shlex.quote(shlex.join(words)), command=command))
        f.write("echo '==== end'\nsleep 3\npoweroff -f\n")
    os.chmod(os.path.join(tree, "init"), 0o755)


def make_image(work, kernel):
    iso = os.path.join(work, "iso")
    os.makedirs(iso)
    shutil.copy(kernel, os.path.join(iso, "vmlinuz"))
    share = os.path.join(os.sep, "usr", "lib")
    shutil.copy(os.path.join(share, "ISOLINUX/isolinux.bin"), iso)
    shutil.copy(os.path.join(share, "syslinux/modules/bios/ldlinux.c32"), iso)
    with open(os.path.join(iso, "isolinux.cfg"), "w", encoding="utf-8") as f:
        f.write(f"DEFAULT l\nLABEL l\n KERNEL /vmlinuz\n APPEND initrd=/initrd {OPTIONS}\n")
    subprocess.run("cd tree && find . | cpio -o -H newc --quiet >../iso/initrd", shell=True,
                   cwd=work, check=True)
    subprocess.run(["xorriso", "-as", "mkisofs", "-quiet", "-o", "boot.iso", "-b", "isolinux.bin",
                    "-c", "boot.cat", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table",
                    "iso"], cwd=work, check=True, stderr=subprocess.DEVNULL)


def emulate(work, seconds):
    """Runs Bochs, which wants a terminal, prints what comes by the serial line, and returns it."""
    with open(os.path.join(work, "rc"), "w", encoding="utf-8") as f:
        f.write("c\n") # Debian's Bochs begins in its debugger
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(work)
        os.nice(10)
        os.environ["TERM"] = "xterm"
        os.execvp("bochs", ["bochs", "-q", "-f", "bochsrc", "-rc", "rc"])
    serial, shown, end = os.path.join(work, "serial.txt"), "", time.monotonic() + seconds

    def show():
        if not os.path.exists(serial):
            return ""
        with open(serial, encoding="utf-8", errors="replace") as f:
            text = f.read()
        print(text[len(shown):], end="", flush=True)
        return text

    try:
        while "==== end" not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 1)[0] and not os.read(terminal, 65536):
                break
            shown = show()
    except OSError: # Bochs has ended
        shown = show()
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return shown


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="+", help="a program with its arguments, quoted")
    parser.add_argument("--cpu", choices=MODELS, default="icelake", help="skylake has no VNNI")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--memory", type=int, default=1536, help="MiB")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds")
    args = parser.parse_args()
    if not install():
        print("no Bochs or no xorriso here")
        return 2
    commands = [shlex.split(c) for c in args.command]
    with tempfile.TemporaryDirectory() as work:
        make_tree(os.path.join(work, "tree"), commands, args.env)
        make_image(work, fetch_kernel(work))
        with open(os.path.join(work, "bochsrc"), "w", encoding="utf-8") as f:
            f.write(BOCHS.format(model=MODELS[args.cpu], memory=args.memory,
                                 share=os.path.join(os.sep, "usr", "share")))
        shown = emulate(work, args.timeout)
    status = re.findall(r"==== status (\d+)", shown)
    good = sum(s in ("0", "77") for s in status)
    print(f"{good} of {len(commands)} programs ended well")
    return 0 if good == len(commands) else 1


if __name__ == "__main__":
    sys.exit(main())
