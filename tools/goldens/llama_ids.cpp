// llama_ids MODEL [PRE] prints, as JSON, the ids of tokens that end a text in llama.cpp, whether a token goes before
// texts, and then the ids of each text of standard input: its bytes behind a line with their number. PRE overrides tokenizer.ggml.pre.
//
//   c++ -std=c++17 -I$LLAMA/include -I$LLAMA/ggml/include llama_ids.cpp $LLAMA/build/src/libllama.a \
//     $LLAMA/build/ggml/src/lib{ggml,ggml-cpu,ggml-base}.a -lpthread -ldl -fopenmp -o llama_ids

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "llama.h"

static void print(const std::vector<llama_token> & ids) {
    putchar('[');
    for (size_t i = 0; i < ids.size(); i++) {
        printf(i ? ",%d" : "%d", ids[i]);
    }
    puts("]");
}

int main(int argc, char ** argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: llama_ids MODEL [PRE] < TEXTS\n");
        return 2;
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    llama_model_kv_override overrides[2] = {};
    if (argc == 3) {
        snprintf(overrides[0].key, sizeof overrides[0].key, "tokenizer.ggml.pre");
        overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_STR;
        snprintf(overrides[0].val_str, sizeof overrides[0].val_str, "%s", argv[2]);
        params.kv_overrides = overrides;
    }
    llama_model * model = llama_model_load_from_file(argv[1], params);
    if (!model) {
        fprintf(stderr, "llama_ids: %s does not load\n", argv[1]);
        return 1;
    }
    const llama_vocab * vocab = llama_model_get_vocab(model);
    std::vector<llama_token> ids;
    for (llama_token id = 0; id < llama_vocab_n_tokens(vocab); id++) {
        if (llama_vocab_is_eog(vocab, id)) {
            ids.push_back(id);
        }
    }
    print(ids);
    puts(llama_vocab_get_add_bos(vocab) ? "true" : "false");
    size_t n;
    while (scanf("%zu", &n) == 1 && getchar() == '\n') {
        std::string text(n, 0);
        if (fread(&text[0], 1, n, stdin) != n) {
            return 1;
        }
        ids.resize(n + 16);
        ids.resize(llama_tokenize(vocab, text.data(), n, ids.data(), ids.size(), false, true));
        print(ids);
    }
}
