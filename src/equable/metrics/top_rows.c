/* What `top_rows.h` says, for each type of probabilities. */

#include <stdint.h>

/* The same function for several processors, of which the loader takes the best that this one can run. */
#ifdef CLONES
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

enum {
    FEW_CLASSES = 63, /* rows of at most so many are read side by side, longer ones one by one */
    ROWS = 16         /* so many side by side: their sums and maxima stay in registers */
};

/* A negative label is huge without its sign. */
static inline int is_class(int64_t label, int64_t n_classes)
{
    return (uint64_t)label < (uint64_t)n_classes;
}

#define REAL float
#define NAME(part) part##_float32
#include "top_rows.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME(part) part##_float64
#include "top_rows.h"
