/* Byte pairs as GPT-2 joins them. The vocabulary lists the pairs in the order in which they were
 * learned, so that of several pairs the one with the smallest id is joined first. */
#include "llm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The vocabulary has a letter for each byte: these bytes are their own letters, the others get
 * letters from U+0100 on. */
static bool is_own_letter(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173 && byte <= 255);
}

static unsigned letter_of(unsigned byte)
{
    unsigned others = 0;
    for (unsigned i = 0; i < byte; i++) {
        others += !is_own_letter(i);
    }
    return is_own_letter(byte) ? byte : 256 + others;
}

static int compare(const char *a, size_t a_size, string_t b)
{
    const int order = memcmp(a, b.text, a_size < b.size ? a_size : b.size);
    return order != 0 ? order : (a_size > b.size) - (a_size < b.size);
}

/* The id of a token, -1 if there is none with this text. */
static int32_t find(const vocabulary_t *v, const char *text, size_t size)
{
    size_t low = 0, high = v->count;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        const int order = compare(text, size, v->tokens[v->sorted[mid]]);
        if (order == 0) {
            return v->sorted[mid];
        }
        if (order > 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return -1;
}

/* qsort has no argument for the strings, so that they are sorted with their ids. */
typedef struct entry {
    string_t token;
    int32_t id;
} entry_t;

static int by_text(const void *a, const void *b)
{
    const entry_t *first = a, *second = b;
    return compare(first->token.text, first->token.size, second->token);
}

/* Texts become tokens in one way here; a file that asks for another is refused. */
static const char *check_tokenizer(const gguf_t *g)
{
    static const char *const words[2][2] = {{"tokenizer.ggml.model", "gpt2"},
                                            {"tokenizer.ggml.pre", "smollm"}};
    static const char *const switches[3] = {"tokenizer.ggml.add_bos_token",
                                            "tokenizer.ggml.add_eos_token",
                                            "tokenizer.ggml.add_space_prefix"};
    for (int i = 0; i < 2; i++) {
        string_t value = {words[i][1], strlen(words[i][1])};
        TRY(gguf_string(g, words[i][0], &value));
        if (!string_is(value, words[i][1])) {
            return failure("%s is not %s", words[i][0], words[i][1]);
        }
    }
    for (int i = 0; i < 3; i++) {
        double on = 0.0;
        TRY(gguf_number(g, switches[i], &on));
        if (on != 0.0) {
            return failure("%s is on, which the engine does not do", switches[i]);
        }
    }
    return NULL;
}

const char *vocabulary_open(vocabulary_t *v, const gguf_t *g)
{
    *v = (vocabulary_t){NULL};
    TRY(check_tokenizer(g));
    const char *error = gguf_strings(g, "tokenizer.ggml.tokens", &v->tokens, &v->count);
    if (error != NULL) {
        return error;
    }
    entry_t *entries = malloc((v->count + 1) * sizeof *entries);
    v->sorted = malloc((v->count + 1) * sizeof *v->sorted);
    if (entries == NULL || v->sorted == NULL || v->count > INT32_MAX) {
        free(entries);
        return failure("no memory for the vocabulary");
    }
    for (size_t i = 0; i < v->count; i++) {
        entries[i] = (entry_t){v->tokens[i], (int32_t)i};
    }
    qsort(entries, v->count, sizeof *entries, by_text);
    for (size_t i = 0; i < v->count; i++) {
        v->sorted[i] = entries[i].id;
    }
    free(entries);
    return NULL;
}

void vocabulary_close(vocabulary_t *v)
{
    free(v->tokens);
    free(v->sorted);
    *v = (vocabulary_t){NULL};
}

/* ---- words ----------------------------------------------------------------------------------- */

enum class { SPACE, LETTER, DIGIT, OTHER };

/* Bytes of other scripts count as letters. */
static enum class class_of(char c) {
    const unsigned char u = (unsigned char)c, lower = u | 32;
    if (u == ' ' || (u >= 9 && u <= 13)){return SPACE;}
if (u >= '0' && u <= '9')
{
    return DIGIT;
}
return u >= 128 || (lower >= 'a' && lower <= 'z') ? LETTER : OTHER;
}

static size_t run(const char *text, enum class class)
{
    size_t n = 0;
    while (text[n] != 0 && class_of(text[n]) == class) {
        n++;
    }
    return n;
}

/* Bytes of the next word: letters, one digit, or other characters, each with a space before it;
 * 's and the like; white space, without its last character before anything but a digit. */
static size_t word(const char *text)
{
    static const char endings[7][4] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (int i = 0; i < 7; i++) {
        if (strncmp(text, endings[i], strlen(endings[i])) == 0) {
            return strlen(endings[i]);
        }
    }
    const size_t space = text[0] == ' ' && text[1] != 0 && class_of(text[1]) != SPACE;
    const enum class class = class_of(text[space]);
    if (class == DIGIT) {
        return 1; /* a digit is a word of its own, and so is the space before it */
    }
    const size_t n = run(text + space, class);
    const bool before_word = text[n] != 0 && class_of(text[n]) != DIGIT;
    return space + (class == SPACE && n > 1 && before_word ? n - 1 : n);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* A word of at most this many bytes is joined; longer ones are cut. */
enum { LONGEST = 256 };

static size_t join(const vocabulary_t *v, const char *text, size_t size, int32_t *tokens)
{
    char letters[2 * LONGEST];
    size_t at[LONGEST + 1], n = size, end = 0; /* where each piece begins */
    for (size_t i = 0; i < size; i++) {
        const unsigned letter = letter_of((unsigned char)text[i]);
        at[i] = end;
        if (letter >= 128) {
            letters[end++] = (char)(0xC0 | letter >> 6);
        }
        letters[end++] = (char)(letter < 128 ? letter : (0x80 | (letter & 0x3F)));
    }
    at[n] = end;
    for (;;) {
        size_t best = n;
        int32_t best_id = INT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            const int32_t id = find(v, letters + at[i], at[i + 2] - at[i]);
            if (id >= 0 && id < best_id) {
                best = i;
                best_id = id;
            }
        }
        if (best == n) {
            break;
        }
        memmove(&at[best + 1], &at[best + 2], (n - best - 1) * sizeof at[0]);
        n--;
    }
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t id = find(v, letters + at[i], at[i + 1] - at[i]);
        tokens[count] = id;
        count += id >= 0; /* a letter that the vocabulary lacks is left out */
    }
    return count;
}

size_t encode(const vocabulary_t *v, const char *text, int32_t *tokens)
{
    size_t n = 0;
    while (*text != 0) {
        const char *close = strncmp(text, "<|", 2) == 0 ? strstr(text, "|>") : NULL;
        const int32_t special = close != NULL ? find(v, text, (size_t)(close + 2 - text)) : -1;
        size_t size = special >= 0 ? (size_t)(close + 2 - text) : word(text);
        size = special < 0 && size > LONGEST ? LONGEST : size;
        if (special >= 0) {
            tokens[n++] = special;
        } else {
            n += join(v, text, size, tokens + n);
        }
        text += size;
    }
    return n;
}

void print_token(const vocabulary_t *v, int32_t token)
{
    const string_t s = v->tokens[token];
    for (size_t i = 0; i < s.size; i++) {
        unsigned letter = (unsigned char)s.text[i];
        if (letter >= 0xC0 && i + 1 < s.size) {
            letter = (letter & 0x1F) << 6 | ((unsigned char)s.text[++i] & 0x3F);
        }
        for (unsigned byte = 0; byte < 256; byte++) {
            if (letter_of(byte) == letter) {
                putchar((int)byte);
            }
        }
    }
}

bool is_token(const vocabulary_t *v, int32_t token, const char *text)
{
    return compare(text, strlen(text), v->tokens[token]) == 0;
}
