/* The largest number of each row of probabilities, and whether it is that of the row's label.
 *
 * REAL is the type of the probabilities; NAME gives a function the name it has for this type.
 */

/* A sum that is NaN is not near. */
static inline int NAME(near_one)(REAL sum)
{
    return (sum >= (REAL)(1 - 0.9e-3)) & (sum <= (REAL)(1 + 0.9e-3));
}

/* Whether the label's number is the top; of equal ones the first counts. */
static inline uint8_t NAME(is_first)(const REAL *row, int64_t label, REAL top)
{
    for (int64_t c = 0; c < label; c++)
        if (row[c] == top)
            return 0;
    return row[label] == top;
}

static inline __attribute__((always_inline)) int NAME(one_row)(
    const REAL *row, int64_t n_classes, int64_t label, REAL *confidence, uint8_t *hit)
{
    if (!is_class(label, n_classes))
        return 0;
    REAL top = 0, least = 0, sum = 0;
    int64_t equal = 0;
#pragma omp simd reduction(max : top) reduction(min : least) reduction(+ : sum)
    for (int64_t c = 0; c < n_classes; c++) {
        top = row[c] > top ? row[c] : top;
        least = row[c] < least ? row[c] : least;
        sum += row[c];
    }
#pragma omp simd reduction(+ : equal)
    for (int64_t c = 0; c < n_classes; c++)
        equal += row[c] == top;
    *confidence = top;
    *hit = equal > 1 ? NAME(is_first)(row, label, top) : row[label] == top;
    return (least == 0) & NAME(near_one)(sum);
}

/* Rows of few classes, each in a lane of its own, so that one instruction serves several of them. */
static inline __attribute__((always_inline)) int NAME(side_by_side)(
    const REAL *rows, int64_t n_classes, const volatile int64_t *labels, REAL *confidence, uint8_t *hit)
{
    int64_t own[ROWS];
    for (int r = 0; r < ROWS; r++) {
        own[r] = labels[r];
        if (!is_class(own[r], n_classes))
            return 0;
    }
    REAL x[ROWS], top[ROWS], least[ROWS], sum[ROWS], ties[ROWS];
    for (int r = 0; r < ROWS; r++)
        top[r] = least[r] = sum[r] = ties[r] = 0;
    for (int64_t c = 0; c < n_classes; c++) {
        for (int r = 0; r < ROWS; r++)
            x[r] = rows[r * n_classes + c];
        for (int r = 0; r < ROWS; r++) {
            ties[r] = x[r] > top[r] ? 0 : (x[r] == top[r] ? 1 : ties[r]);
            top[r] = x[r] > top[r] ? x[r] : top[r];
            least[r] = x[r] < least[r] ? x[r] : least[r];
            sum[r] += x[r];
        }
    }
    int plain = 1;
    REAL any = 0;
    for (int r = 0; r < ROWS; r++) {
        plain &= (least[r] == 0) & NAME(near_one)(sum[r]);
        any += ties[r];
        confidence[r] = top[r];
        hit[r] = rows[r * n_classes + own[r]] == top[r];
    }
    for (int r = 0; any > 0 && r < ROWS; r++)
        hit[r] = NAME(is_first)(rows + r * n_classes, own[r], top[r]);
    return plain;
}

/* Fill confidence and hit (n_rows each) from rows (n_rows, n_classes) and labels (n_rows).
 *
 * Returns 1 if every row is plainly one of probabilities, and its label one of the classes. Otherwise 0: what
 * was written then means nothing, and the rows want looking at by someone who can say what is wrong with them.
 * Each label is read once, and checked before it is used: another thread may be writing them.
 */
FOR_EACH_PROCESSOR int NAME(top_rows)(const REAL *rows, int64_t n_rows, int64_t n_classes,
                                      const volatile int64_t *labels, REAL *confidence, uint8_t *hit)
{
    int plain = 1;
    int64_t i = 0;
    for (; n_classes <= FEW_CLASSES && i + ROWS <= n_rows; i += ROWS)
        plain &= NAME(side_by_side)(rows + i * n_classes, n_classes, labels + i, confidence + i, hit + i);
    for (; i < n_rows; i++)
        plain &= NAME(one_row)(rows + i * n_classes, n_classes, labels[i], confidence + i, hit + i);
    return plain;
}
