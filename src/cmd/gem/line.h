/* line.h - a line from the person at the terminal, with editing and history. Used by run. */
#ifndef GEM_CMD_LINE_H
#define GEM_CMD_LINE_H

#include <stdbool.h>

typedef struct line_reader line_reader;
line_reader *line_open(const char *prompt); /* NULL when out of memory */
void line_close(line_reader *l);            /* the terminal is as it was */
/* Next line without its newline, borrowed until the next call; NULL at the end of input.
 * *interrupted: Ctrl-C was typed; the line is empty then. */
const char *line_read(line_reader *l, bool *interrupted);

#endif
