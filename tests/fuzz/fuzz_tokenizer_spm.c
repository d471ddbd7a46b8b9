/* Fuzz score merging (and rank merging over characters): texts, files, vocabularies. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void scores(vocab_spec *v)
{
    vocab_of_chars(v, "llama");
}

static void ranks(vocab_spec *v)
{
    vocab_of_chars(v, "gemma4");
}

/* First byte 3: the edits go to the vocabulary with ranks. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] == 3) {
        fuzz_edits(ranks, data + 1, size - 1);
        return 0;
    }
    return fuzz_tokenizer(scores, data, size);
}
