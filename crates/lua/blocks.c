/*
** What the instrumented build counts (the feature `count-blocks`, for tests): the compilers call
** __sanitizer_cov_trace_pc at the start of each basic block of Lua and of the Rust crates. This file is
** compiled without that.
**
** Some library functions do work in proportion to a size without a block of ours. The linker sends their
** callers here (--wrap), and each counts about as many blocks as would take as long.
**
** One thread only: the counters are plain variables.
*/

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes that take about as long as a block, when they are copied, compared, or given by the kernel. */
#define BYTES_PER_BLOCK 16
/* What an allocation takes besides. */
#define BLOCKS_PER_ALLOCATION 10
/* Smaller allocations reuse memory that is there. */
#define FRESH_BYTES_MIN (128 * 1024)
/* What a conversion between a number and its text takes, besides its characters. */
#define BLOCKS_PER_NUMERAL 50

/* Places in code, by a hash. */
#define PLACES_BITS 18
#define PLACES (1u << PLACES_BITS)

static uint64_t counted;
static uint64_t counted_max = UINT64_MAX;
static uint8_t seen[PLACES];
static uint32_t fresh[PLACES];
static size_t fresh_length;

/* What the reader of the standard output is told of a run that is stopped; see the judge's worker. */
static const char EXCEEDED[] = "exceeded\n";

static void add (uint64_t blocks) {
  counted += blocks;
  if (counted > counted_max) {
    counted_max = UINT64_MAX;
    if (write(1, EXCEEDED, sizeof EXCEEDED - 1) < 0) _exit(3);
    _exit(2);
  }
}

void __sanitizer_cov_trace_pc (void) {
  uintptr_t at = (uintptr_t)__builtin_return_address(0) - (uintptr_t)&__sanitizer_cov_trace_pc;
  uint32_t place = (uint32_t)(at * 0x9E3779B97F4A7C15ull >> (64 - PLACES_BITS));
  if (!seen[place]) {
    seen[place] = 1;
    fresh[fresh_length++] = place;
  }
  add(1);
}

void ordo_blocks_begin (uint64_t max) {
  counted = 0;
  counted_max = max;
  fresh_length = 0;
}

uint64_t ordo_blocks_end (void) {
  counted_max = UINT64_MAX;
  return counted;
}

/* The places that were first seen since ordo_blocks_begin. */
size_t ordo_blocks_fresh (const uint32_t **places) {
  *places = fresh;
  return fresh_length;
}

static void add_bytes (size_t bytes) {
  add(1 + bytes / BYTES_PER_BLOCK);
}

void *__real_memcpy (void *to, const void *from, size_t n);
void *__wrap_memcpy (void *to, const void *from, size_t n) {
  add_bytes(n);
  return __real_memcpy(to, from, n);
}

void *__real_memmove (void *to, const void *from, size_t n);
void *__wrap_memmove (void *to, const void *from, size_t n) {
  add_bytes(n);
  return __real_memmove(to, from, n);
}

void *__real_memset (void *to, int byte, size_t n);
void *__wrap_memset (void *to, int byte, size_t n) {
  add_bytes(n);
  return __real_memset(to, byte, n);
}

int __real_memcmp (const void *a, const void *b, size_t n);
int __wrap_memcmp (const void *a, const void *b, size_t n) {
  add_bytes(n);
  return __real_memcmp(a, b, n);
}

int __real_bcmp (const void *a, const void *b, size_t n);
int __wrap_bcmp (const void *a, const void *b, size_t n) {
  add_bytes(n);
  return __real_bcmp(a, b, n);
}

void *__real_memchr (const void *text, int byte, size_t n);
void *__wrap_memchr (const void *text, int byte, size_t n) {
  char *found = __real_memchr(text, byte, n);
  add_bytes(found ? (size_t)(found - (const char *)text) : n);
  return found;
}

size_t __real_strlen (const char *text);
size_t __wrap_strlen (const char *text) {
  size_t n = __real_strlen(text);
  add_bytes(n);
  return n;
}

char *__real_strchr (const char *text, int byte);
char *__wrap_strchr (const char *text, int byte) {
  char *found = __real_strchr(text, byte);
  add_bytes(found ? (size_t)(found - text) : __real_strlen(text));
  return found;
}

char *__real_strpbrk (const char *text, const char *bytes);
char *__wrap_strpbrk (const char *text, const char *bytes) {
  char *found = __real_strpbrk(text, bytes);
  add(1 + (found ? (size_t)(found - text) : __real_strlen(text)) / 4);
  return found;
}

int __real_strcoll (const char *a, const char *b);
int __wrap_strcoll (const char *a, const char *b) {
  size_t n = 0;
  while (a[n] == b[n] && a[n] != '\0') n++;
  add(2 + n / BYTES_PER_BLOCK);
  return __real_strcoll(a, b);
}

double __real_strtod (const char *text, char **end);
double __wrap_strtod (const char *text, char **end) {
  char *ended;
  double number = __real_strtod(text, &ended);
  add(BLOCKS_PER_NUMERAL + (uint64_t)(ended - text));
  if (end != NULL) *end = ended;
  return number;
}

unsigned long __real_strtoul (const char *text, char **end, int base);
unsigned long __wrap_strtoul (const char *text, char **end, int base) {
  char *ended;
  unsigned long number = __real_strtoul(text, &ended, base);
  add(2 + (uint64_t)(ended - text));
  if (end != NULL) *end = ended;
  return number;
}

int __wrap_sprintf (char *to, const char *format, ...) {
  int n;
  va_list arguments;
  va_start(arguments, format);
  n = vsprintf(to, format, arguments);
  va_end(arguments);
  add(BLOCKS_PER_NUMERAL + (uint64_t)(n < 0 ? 0 : n));
  return n;
}

static void add_allocation (size_t bytes) {
  add(BLOCKS_PER_ALLOCATION + (bytes < FRESH_BYTES_MIN ? 0 : bytes / BYTES_PER_BLOCK));
}

void *__real_malloc (size_t n);
void *__wrap_malloc (size_t n) {
  add_allocation(n);
  return __real_malloc(n);
}

void *__real_calloc (size_t count, size_t n);
void *__wrap_calloc (size_t count, size_t n) {
  add_allocation(count * n);
  return __real_calloc(count, n);
}

/* The part that is new. A large block is not copied when it grows: the kernel moves its pages. */
extern size_t malloc_usable_size (void *block);
void *__real_realloc (void *block, size_t n);
void *__wrap_realloc (void *block, size_t n) {
  size_t before = block == NULL ? 0 : malloc_usable_size(block);
  add_allocation(n > before ? (before < FRESH_BYTES_MIN ? n : n - before) : 0);
  return __real_realloc(block, n);
}
