/*
 * PTX text: kernels by ".entry NAME (parameters)", variables by ".global" and ".const" outside of
 * all braces. The instructions are not read, nor are the initial values of variables.
 */
#include "image.h"

#include <stdlib.h>
#include <string.h>

struct text {
	const char *at, *end;
};

struct word {
	const char *at; /* a name, a directive with its dot, a number, or one other character */
	size_t length;
};

static bool in_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '$' || c == '%';
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static size_t left(const struct text *text)
{
	return (size_t)(text->end - text->at);
}

/* Moves past blanks and comments. */
static void skip(struct text *text)
{
	while (text->at < text->end) {
		const char *end = NULL;

		if (is_space(*text->at)) {
			text->at++;
			continue;
		}
		if (left(text) < 2 || text->at[0] != '/')
			return;
		if (text->at[1] == '/') {
			end = memchr(text->at, '\n', left(text));
			text->at = end ? end + 1 : text->end;
		} else if (text->at[1] == '*') {
			end = memmem(text->at + 2, left(text) - 2, "*/", 2);
			text->at = end ? end + 2 : text->end;
		} else {
			return;
		}
	}
}

/* Reads the next word; false at the end. A quoted string is one word. */
static bool next(struct text *text, struct word *ret_word)
{
	skip(text);
	if (text->at == text->end)
		return false;
	ret_word->at = text->at++;
	if (*ret_word->at == '"') {
		const char *quote = memchr(text->at, '"', left(text));

		text->at = quote ? quote + 1 : text->end;
	} else if (in_name(*ret_word->at) || *ret_word->at == '.') {
		while (text->at < text->end && in_name(*text->at))
			text->at++;
	}
	ret_word->length = (size_t)(text->at - ret_word->at);
	return true;
}

static bool is(const struct word *word, const char *what)
{
	return word->length == strlen(what) && !memcmp(word->at, what, word->length);
}

static uint64_t number(const struct word *word)
{
	const uint64_t most = 1ull << 40;
	uint64_t value = 0;

	for (size_t i = 0; i < word->length && value < most; i++) {
		if (word->at[i] < '0' || word->at[i] > '9')
			return 0;
		value = value * 10 + (uint64_t)(word->at[i] - '0');
	}
	return value;
}

/* The bytes of a type such as ".u64" or ".b8"; 0 if the word is no type. Types of textures and the
 * like are handles of 8 bytes. */
static unsigned type_bytes(const struct word *word)
{
	static const char kinds[] = "busf";
	struct word digits;

	if (is(word, ".texref") || is(word, ".samplerref") || is(word, ".surfref"))
		return 8;
	if (word->length < 3 || word->at[0] != '.' || !strchr(kinds, word->at[1]))
		return 0;
	digits = (struct word){word->at + 2, word->length - 2};
	return (unsigned)number(&digits) / 8;
}

/* A declaration: the words between its state space and the character that ends it. */
struct declaration {
	struct word name;
	uint64_t bytes;
	uint32_t alignment;
	bool managed;
	char end; /* the character that ended it; 0: the text's end */
};

static void declaration_read(struct text *text, struct declaration *ret)
{
	uint64_t element = 0, count = 1;
	bool in_attribute = false;
	struct word word;

	*ret = (struct declaration){0};
	while (next(text, &word)) {
		char c = *word.at;

		if (is(&word, ".attribute")) {
			in_attribute = true;
			continue;
		}
		if (c == ')' && in_attribute) {
			in_attribute = false;
			continue;
		}
		if (c == ',' || c == ';' || c == ')' || c == '=') {
			ret->end = c;
			break;
		}
		if (is(&word, ".align")) {
			if (next(text, &word))
				ret->alignment = (uint32_t)number(&word);
		} else if (is(&word, ".managed")) {
			ret->managed = true;
		} else if (c == '[') {
			if (next(text, &word)) {
				uint64_t length = number(&word);

				count = length && count > UINT32_MAX / length ? UINT32_MAX
									      : count * length;
			}
		} else if (c == '.') {
			element = type_bytes(&word) ? type_bytes(&word) : element;
		} else if (in_name(c)) {
			ret->name = word;
		}
	}
	ret->bytes = element * count;
	if (!ret->alignment || ret->alignment & (ret->alignment - 1))
		ret->alignment = element ? (uint32_t)element : 1;
}

static CUresult parameters_read(struct text *text, struct image_kernel *kernel)
{
	struct declaration declaration;
	uint32_t offset = 0;

	do {
		declaration_read(text, &declaration);
		if (!declaration.name.length)
			break;
		offset = (offset + declaration.alignment - 1) & ~(declaration.alignment - 1);
		if (declaration.bytes > UINT16_MAX || offset > UINT16_MAX)
			return CUDA_ERROR_INVALID_PTX;
		if (!image_add_parameter(kernel, kernel->parameter_count, offset,
					 (uint32_t)declaration.bytes))
			return CUDA_ERROR_OUT_OF_MEMORY;
		offset += (uint32_t)declaration.bytes;
	} while (declaration.end == ',');
	return CUDA_SUCCESS;
}

static CUresult kernel_read(struct text *text, struct image *image)
{
	struct word name;

	if (!next(text, &name) || !in_name(*name.at))
		return CUDA_ERROR_INVALID_PTX;
	struct image_kernel *kernel = image_add_kernel(image, name.at, name.length);
	if (!kernel)
		return CUDA_ERROR_OUT_OF_MEMORY;
	skip(text);
	if (text->at == text->end || *text->at != '(')
		return CUDA_SUCCESS;
	text->at++;
	return parameters_read(text, kernel);
}

/* PTX allows several variables in one declaration; nvcc writes one, and only one is read. */
static CUresult variable_read(struct text *text, bool external, struct image *image)
{
	struct declaration declaration;
	struct image_variable *variable;

	declaration_read(text, &declaration);
	if (external || !declaration.name.length || !declaration.bytes)
		return CUDA_SUCCESS;
	variable = image_add_variable(image, declaration.name.at, declaration.name.length,
				      declaration.bytes, declaration.managed);
	return variable ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The bytes of local memory that the kernel whose body is being read declares for a thread. */
static void local_read(struct text *text, struct image *image)
{
	struct declaration declaration;

	declaration_read(text, &declaration);
	if (image->kernel_count)
		image->kernels[image->kernel_count - 1].local_bytes += (uint32_t)declaration.bytes;
}

static CUresult version_read(struct text *text, struct image *image)
{
	struct word word;

	if (!next(text, &word) || !is(&word, ".version"))
		return CUDA_ERROR_INVALID_IMAGE;
	if (next(text, &word))
		image->ptx_version = (unsigned)number(&word) * 10;
	if (next(text, &word) && word.length > 1) {
		word.at++; /* the dot */
		word.length--;
		image->ptx_version += (unsigned)number(&word);
	}
	return CUDA_SUCCESS;
}

CUresult ptx_read(struct image_bytes bytes, struct image *image)
{
	struct text text = {(const char *)bytes.data, (const char *)bytes.data + bytes.count};
	bool external = false;
	unsigned depth = 0;
	struct word word;

	if (memchr(text.at, 0, bytes.count))
		text.end = memchr(text.at, 0, bytes.count);
	CUresult result = version_read(&text, image);
	while (!result && next(&text, &word)) {
		if (*word.at == '{')
			depth++;
		else if (*word.at == '}')
			depth -= depth ? 1 : 0;
		else if (is(&word, ".entry"))
			result = kernel_read(&text, image);
		else if (depth && is(&word, ".local"))
			local_read(&text, image);
		else if (!depth && is(&word, ".extern"))
			external = true;
		else if (!depth && (is(&word, ".global") || is(&word, ".const"))) {
			result = variable_read(&text, external, image);
			external = false;
		} else if (*word.at == ';') {
			external = false;
		}
	}
	return result;
}
