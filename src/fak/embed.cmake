# embed.cmake - turn the committed graph into a C array: cmake -DIN=graph.json -DOUT=graph_data.c -P embed.cmake
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "((0x..,){16})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* made from data/native-performance/graph.json by embed.cmake */
#include <stddef.h>
extern const unsigned char fak_graph_data[];
extern const size_t fak_graph_data_len;
const unsigned char fak_graph_data[] = {
${bytes}
};
const size_t fak_graph_data_len = sizeof(fak_graph_data);
")
