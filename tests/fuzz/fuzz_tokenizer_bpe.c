/* Fuzz byte-level rank merging with the Qwen word splitters: texts, files, vocabularies. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void qwen2(vocab_spec *v)
{
    vocab_of_words(v, "qwen2");
}

static void qwen35(vocab_spec *v)
{
    vocab_of_words(v, "qwen35");
}

/* First byte 3: the edits go to the vocabulary whose words hold marks. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] == 3) {
        fuzz_edits(qwen35, data + 1, size - 1);
        return 0;
    }
    return fuzz_tokenizer(qwen2, data, size);
}
