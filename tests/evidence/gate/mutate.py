"""mutate.py FOLDER COMMAND...: one bit of every byte of every file is flipped, one at a time; COMMAND must fail each
time, and hold when all is put back. Prints how many flips there were, and those that went unseen."""
import os
import subprocess
import sys


def holds(command):
    code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    if code < 0 or code > 4:
        sys.exit(f"{command[0]} ended with {code}")  # it must refuse, not crash; the flipped file is left as it is
    return code == 0


folder, command = sys.argv[1], sys.argv[2:]
flips = unseen = 0
for parent, _, names in sorted(os.walk(folder)):
    for name in sorted(names):
        path = os.path.join(parent, name)
        with open(path, "r+b", buffering=0) as file:
            kept = file.read()
            for at, byte in enumerate(kept):
                os.pwrite(file.fileno(), bytes([byte ^ 1]), at)
                flips += 1
                if holds(command):
                    unseen += 1
                    print(f"byte {at} of {name} was changed unseen")
                os.pwrite(file.fileno(), kept[at : at + 1], at)
            print(f"{name}: {len(kept)} bytes", file=sys.stderr)
print(f"{flips} flips, {unseen} unseen")
if not holds(command):
    sys.exit("what was put back does not hold")
sys.exit(unseen != 0)
