// Euclidean distances of all pairs of rows, and their gradient: a thread for each number. `C` is
// the type in which they are computed; all operands are dense and of that type.
//
// WITHIN: of the pairs i < j of rows of one operand, ordered by i. Otherwise of all rows of x and
// y.

struct Pairs {
  u64 x, y, distances, dy, out;
  u64 count, n, m, d;  // examples, rows of x and of y, features
  u64 of_x;            // whether the gradient is that of the rows of x
};

// Where the distance of rows i and j is: in either order, if within one operand.
FN u64 place(const Pairs& p, u64 i, u64 j) {
#ifdef WITHIN
  u64 low = i < j ? i : j, high = i < j ? j : i;
  return low * p.n - low * (low + 1) / 2 + (high - low - 1);
#else
  return i * p.m + j;
#endif
}
FN u64 pairs(const Pairs& p) {
#ifdef WITHIN
  return p.n * (p.n - 1) / 2;
#else
  return p.n * p.m;
#endif
}

extern "C" __global__ void __launch_bounds__(256) k(Pairs p) {
  const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
  const C* x = (const C*)p.x;
  const C* y = (const C*)p.y;
#ifdef FORWARD
  const u64 n = pairs(p);
  if (at >= p.count * n) return;
  const u64 example = at / n, k = at % n;
#ifdef WITHIN
  // The last row i whose pairs begin at k or before.
  u64 i = 0, end = p.n - 1;
  while (end - i > 1) {
    u64 middle = (i + end) / 2;
    if (place(p, middle, middle + 1) <= k) i = middle; else end = middle;
  }
  const u64 j = k - place(p, i, i + 1) + i + 1;
#else
  const u64 i = k / p.m, j = k % p.m;
#endif
  x += (example * p.n + i) * p.d;
  y += (example * p.m + j) * p.d;
  C sum = 0;
  for (u64 f = 0; f < p.d; f++) {
    C by = x[f] - y[f];
    sum += by * by;
  }
  ((C*)p.out)[at] = sqrt(sum);
#else
  // Of row i of x with all rows of y, or of row j of y with all of x.
  const u64 rows = p.of_x ? p.n : p.m, others = p.of_x ? p.m : p.n;
  if (at >= p.count * rows * p.d) return;
  const u64 example = at / (rows * p.d), row = at / p.d % rows, f = at % p.d;
  const C* mine = p.of_x ? x : y;
  const C* theirs = (p.of_x ? y : x) + example * others * p.d;
  const C* distances = (const C*)p.distances + example * pairs(p);
  const C* dy = (const C*)p.dy + example * pairs(p);
  const C value = mine[at];
  C sum = 0;
  for (u64 other = 0; other < others; other++) {
#ifdef WITHIN
    if (other == row) continue;
#endif
    const u64 k = p.of_x ? place(p, row, other) : place(p, other, row);
    const C distance = distances[k];
    if (distance != 0) sum += dy[k] / distance * (value - theirs[other * p.d + f]);
  }
  ((C*)p.out)[at] = sum;
#endif
}
