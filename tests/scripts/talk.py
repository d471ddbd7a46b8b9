"""talk.py GEM: a conversation at a pseudo-terminal. Prints what failed; exit 0 when nothing did."""
import os
import pty
import select
import signal
import sys
import termios
import time

failures = []


class Terminal:
    def __init__(self, argv):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp(argv[0], argv)
        self.text = ""

    def wait_for(self, what, seconds=180):
        """Read until `what` stands in the text; returns the text up to it and forgets it."""
        end = time.monotonic() + seconds
        while what not in self.text:
            if time.monotonic() > end or not select.select([self.fd], [], [], 0.1)[0]:
                if time.monotonic() > end:
                    failures.append(f"waited for {what!r}, saw {self.text[-300:]!r}")
                    return ""
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                failures.append(f"ended before {what!r}: {self.text[-300:]!r}")
                return ""
            self.text += data.decode("utf-8", "replace")
        seen, self.text = self.text.split(what, 1)
        return seen

    edits = True  # is there a line editor, which takes the terminal out of its line mode?

    def type(self, text):
        """At a prompt: once the editor has the terminal, which is an instant after the prompt is seen."""
        end = time.monotonic() + 30
        while Terminal.edits and termios.tcgetattr(self.fd)[3] & termios.ICANON:
            Terminal.edits = time.monotonic() < end
            time.sleep(0.01)
        os.write(self.fd, text.encode())

    def wait_until_it_reads(self):
        """A key that is a signal, not a byte, is looked at where it ends a read."""
        try:
            while True:
                with open(f"/proc/{self.pid}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] in "SZ":
                        return
                time.sleep(0.01)
        except OSError:
            time.sleep(0.3)  # no /proc here

    def press_until(self, keys, what):
        """Keys, whoever listens; again when they fell into an instant in which nobody did."""
        for _ in range(5):
            before = len(failures)
            os.write(self.fd, keys.encode())
            self.wait_for(what, 20)
            if len(failures) == before:
                return
            del failures[before:]
        failures.append(f"{keys!r} does not lead to {what!r}: {self.text[-300:]!r}")

    def end(self):
        """Exit code, once everything was read."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.text += data.decode("utf-8", "replace")
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def check(what, holds):
    if not holds:
        failures.append(what)


t = Terminal([sys.argv[1], "run", "qwen2.5-coder-0.5b", "-T", "0"])
t.wait_for("> ")
t.type("My name is Ada. Say only: hello Ada.\r")
t.wait_for("[prompt ")
t.wait_for("> ")
# the second turn reuses the first and knows it
t.type("What is my name? One word.\r")
answer = t.wait_for("[prompt ")
check(f"the conversation is remembered: {answer!r}", "Ada" in answer)
figures = t.wait_for("]")
check(f"the prefix is reused: {figures!r}", "kept" in figures)
t.wait_for("> ")
# Ctrl-C stops an answer and leads back to the prompt
t.type("Count from 1 to 1000, one number a line.\r")
t.wait_for("7")
t.press_until("\x03", "interrupted]")
t.wait_for("> ")
# Ctrl-C at the prompt drops the line
t.type("half a line")
t.wait_for("half a line")
t.wait_until_it_reads()
t.press_until("\x03", "> ")
t.type("/clear\r")
t.wait_for("> ")
t.type("What is my name? One word.\r")
answer = t.wait_for("[prompt ")
check(f"/clear forgets: {answer!r}", "Ada" not in answer)
t.wait_for("> ")
t.type("two \\\r")
t.wait_for("> ")
t.type("lines\r")
t.wait_for("[prompt ")
t.wait_for("> ")
t.type("/exit\r")
check("exit code", t.end() == 0)

t = Terminal([sys.argv[1], "run", "gemma-3-270m"])
t.wait_for("> ")
t.type("\x04")
check("Ctrl-D ends with 0", t.end() == 0)

for _ in range(5):  # a story may come to its end before whoever reads it gets to do something
    t = Terminal([sys.argv[1], "run", "qwen2.5-coder-0.5b", "-p", "Write a long story about the sea.", "-q"])
    t.wait_for("sea")
    os.kill(t.pid, signal.SIGTERM)
    code = t.end()
    if code != 0:
        break
check("SIGTERM ends the process", code == -signal.SIGTERM)

print("\n".join(failures) or "the conversation went as it should")
sys.exit(bool(failures))
