# embed.cmake: cmake -DIN=FILE -DOUT=FILE.c -DNAME=SYMBOL -P embed.cmake - the bytes of a file as a C array.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
get_filename_component(file ${IN} NAME)
file(WRITE ${OUT} "/* made from ${file} by embed.cmake */
#include <stddef.h>
extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_len;
const unsigned char ${NAME}[] = {
${bytes}
};
const size_t ${NAME}_len = sizeof(${NAME});
")
