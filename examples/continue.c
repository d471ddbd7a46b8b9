/* continue.c - libgem in forty lines: continue a text, printing it as it comes.
 * cc continue.c $(pkg-config --cflags --libs gem) -o continue && ./continue MODEL.gguf "Once upon" */
#include <gem/gem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(gem_status st, const gem_error *err)
{
    if (st == GEM_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

int main(int argc, char **argv)
{
    gem_error err;
    gem_model *model;
    gem_session *session;
    gem_sampler *sampler;
    gem_detokenizer *text;
    gem_model_info info;
    gem_sampler_options greedy;
    int32_t *prompt, token;
    size_t n, len;
    const float *logits;
    if (argc != 3) return 2;
    check(gem_model_open(&model, argv[1], NULL, &err), &err);
    gem_model_get_info(model, &info);
    gem_sampler_defaults(&greedy);
    check(gem_sampler_new(&sampler, info.n_vocab, &greedy, &err), &err);
    check(gem_session_new(&session, model, &err), &err);
    check(gem_detokenizer_new(&text, model, false, &err), &err);
    check(gem_tokenize(model, argv[2], strlen(argv[2]), GEM_TOK_BOS, &prompt, &n, &err), &err);
    check(gem_session_prefill(session, prompt, n, NULL, NULL, &logits, &err), &err);
    for (int i = 0; i < 12; i++) {
        check(gem_sampler_draw(sampler, logits, &token, &err), &err);
        if (gem_token_is_end(model, token)) break;
        const char *piece = gem_detokenizer_push(text, token, &len);
        fwrite(piece, 1, len, stdout);
        check(gem_session_decode(session, token, &logits, &err), &err);
    }
    putchar('\n');
    free(prompt);
    gem_detokenizer_free(text);
    gem_session_free(session);
    gem_sampler_free(sampler);
    gem_model_close(model);
    return 0;
}
