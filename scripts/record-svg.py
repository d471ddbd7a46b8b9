#!/usr/bin/env python3
"""record-svg.py OUT.svg COMMAND [ARG...]: run a command in a terminal and draw what it wrote, when it wrote it.

The picture is a plain SVG with text; pieces appear at the times they were written (CSS animation; a viewer
without it shows the end). Nothing is edited. Carriage returns overwrite the line; other controls are dropped.
"""
import html
import os
import pty
import re
import select
import shlex
import sys
import time

COLUMNS, ROWS = 112, 30
CHAR_W, LINE_H, PAD = 8.4, 19, 16


def record(argv):
    """[(seconds, text)] as the terminal received it."""
    os.environ.update(TERM="xterm", COLUMNS=str(COLUMNS), LINES=str(ROWS))
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(argv[0], argv)
    start, pieces, pending = time.monotonic(), [], b""
    while True:
        ready, _, _ = select.select([fd], [], [], 0.5)
        if not ready:
            continue
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        pending += data
        text = pending.decode("utf-8", "ignore")
        pending = b"" if pending.endswith(text.encode()[-1:]) else pending[-3:]
        pieces.append((time.monotonic() - start, text))
    os.waitpid(pid, 0)
    return pieces


def lay_out(pieces, prompt):
    """Rows of (time, text) runs; \\r starts the row again, long rows wrap."""
    rows, column = [[(0.0, prompt)], []], 0
    for when, text in pieces:
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        for ch in re.split(r"([\r\n])", text.replace("\r\n", "\n")):
            if ch == "\n":
                rows.append([])
                column = 0
            elif ch == "\r":
                rows[-1] = []
                column = 0
            else:
                ch = "".join(c for c in ch if c >= " ")
                while ch:
                    room = COLUMNS - column
                    if room <= 0:
                        rows.append([])
                        column = 0
                        continue
                    rows[-1].append((when, ch[:room]))
                    column += len(ch[:room])
                    ch = ch[room:]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def draw(rows):
    width, height = int(COLUMNS * CHAR_W + 2 * PAD), len(rows) * LINE_H + 2 * PAD
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        "<style>@keyframes show{from{opacity:0}to{opacity:1}}"
        "text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}"
        "tspan{animation:show 1ms both}.p{fill:#7fdbca}.s{fill:#8b9bb4}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#0b1220"/>',
    ]
    for y, row in enumerate(rows):
        kind = ' class="p"' if y == 0 else ' class="s"' if row and row[0][1].startswith("[prompt") else ""
        spans = "".join(
            f'<tspan{kind} style="animation-delay:{when:.2f}s">{html.escape(text)}</tspan>' for when, text in row
        )
        out.append(f'<text x="{PAD}" y="{PAD + (y + 1) * LINE_H - 5}" xml:space="preserve">{spans}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    argv = sys.argv[2:]
    shown = shlex.join([os.path.basename(argv[0])] + argv[1:])
    rows = lay_out(record(argv), "$ " + shown.replace("'", '"'))
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write(draw(rows))


if __name__ == "__main__":
    main()
