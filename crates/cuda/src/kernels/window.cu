// Convolutions as products over columns, and pooling. Up to three spatial axes; missing ones have
// length 1. `E` is the element, `C` its compute type.

struct Window {
  u64 p[3];                // from, to, and positions
  u64 count;               // threads
  u64 n, c;                // batch and channels
  u64 x[3], y[3], k[3];    // lengths of the input, of the output, and of a window
  i64 stride[3], dilation[3], before[3];
  i64 s[5];                // strides of what is read: batch, channel, axes
  u64 even[3];             // 1: pieces of even size instead of windows
};
// Indices, and positions along axes.
#if WIDE
typedef u64 Ix;
typedef i64 Ii;
#else
typedef u32 Ix;
typedef int Ii;
#endif
FN u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
FN bool inside(i64 at, u64 len) { return at >= 0 && at < (i64)len; }

#ifdef COLUMNS
// The operand of a product: [n, c, k…, y…], or [c, k…, n, y…] for the gradient of a filter.
extern "C" __global__ void k(Window w) {
  u64 q = thread_index(); if (q >= w.count) return;
  u64 at = q, y[3], t[3], n, c;
  for (int d = 2; d >= 0; d--) { y[d] = q % w.y[d]; q /= w.y[d]; }
  if (FILTER) { n = q % w.n; q /= w.n; }
  for (int d = 2; d >= 0; d--) { t[d] = q % w.k[d]; q /= w.k[d]; }
  c = q % w.c; q /= w.c;
  if (!FILTER) n = q;
  i64 from = (i64)n * w.s[0] + (i64)c * w.s[1];
  bool in = true;
  for (int d = 0; d < 3; d++) {
    i64 x = (i64)y[d] * w.stride[d] - w.before[d] + (i64)t[d] * w.dilation[d];
    in = in && inside(x, w.x[d]);
    from += x * w.s[2 + d];
  }
  E zero; store(zero, (C)0);
  ((E*)w.p[1])[at] = in ? ((const E*)w.p[0])[from] : zero;
}
#endif

#ifdef FOLD
// The transpose: from columns [n, c, k…, y…] to x [n, c, x…], each a sum in the order of taps.
extern "C" __global__ void k(Window w) {
  u64 q = thread_index(); if (q >= w.count) return;
  u64 at = q, x[3];
  for (int d = 2; d >= 0; d--) { x[d] = q % w.x[d]; q /= w.x[d]; }
  const E* from = (const E*)w.p[0] + q * (w.k[0] * w.k[1] * w.k[2]) * (w.y[0] * w.y[1] * w.y[2]);
  C sum = 0;
  for (u64 t0 = 0; t0 < w.k[0]; t0++) for (u64 t1 = 0; t1 < w.k[1]; t1++) for (u64 t2 = 0; t2 < w.k[2]; t2++) {
    const u64 t[3] = {t0, t1, t2};
    u64 tap = 0, place = 0; bool in = true;
    for (int d = 0; d < 3; d++) {
      i64 p = (i64)x[d] + w.before[d] - (i64)t[d] * w.dilation[d];
      in = in && p >= 0 && p % w.stride[d] == 0 && p / w.stride[d] < (i64)w.y[d];
      tap = tap * w.k[d] + t[d];
      place = place * w.y[d] + (in ? (u64)(p / w.stride[d]) : 0);
    }
    if (in) sum += load(from[tap * (w.y[0] * w.y[1] * w.y[2]) + place]);
  }
  store(((E*)w.p[1])[at], sum);
}
#endif

// Piece `o` of an axis: its first position, the end, and the distance between positions.
FN void piece(const Window& w, int d, Ii o, Ii& from, Ii& to, Ii& step) {
  if (w.even[d]) {
    const i64 n = (i64)w.x[d], c = (i64)w.y[d];
    from = (Ii)(o * n / c); to = (Ii)(((o + 1) * n + c - 1) / c); step = 1;
    return;
  }
  step = (Ii)w.dilation[d]; from = o * (Ii)w.stride[d] - (Ii)w.before[d]; to = from + (Ii)w.k[d] * step;
  if (from < 0) from += (-from + step - 1) / step * step;
  if (to > (Ii)w.x[d]) to = (Ii)w.x[d];
}
// A quotient, rounded down; divisors are positive.
FN Ii floored(Ii a, Ii b) {
  if (b == 1) return a;
  const Ii q = a / b;
  return q - (a - q * b < 0);
}
// The pieces that may have position `x` of an axis, and whether all of them do.
FN bool around(const Window& w, int d, Ii x, Ii& low, Ii& high) {
  if (w.even[d]) {
    low = (Ii)((i64)x * (i64)w.y[d] / (i64)w.x[d] - 1);
    high = (Ii)(((i64)x + 1) * (i64)w.y[d] / (i64)w.x[d] + 1);
  } else {
    const Ii last = x + (Ii)w.before[d], stride = (Ii)w.stride[d];
    high = floored(last, stride);
    low = floored(last - ((Ii)w.k[d] - 1) * (Ii)w.dilation[d] + stride - 1, stride);
  }
  if (low < 0) low = 0;
  if (high >= (Ii)w.y[d]) high = (Ii)w.y[d] - 1;
  return !w.even[d] && w.dilation[d] == 1;
}
FN bool has(const Window& w, int d, Ii o, Ii x) {
  Ii from, to, step; piece(w, d, o, from, to, step);
  return x >= from && x < to && (step == 1 || (x - from) % step == 0);
}
FN i64 place(const Window& w, Ii a, Ii b, Ii c) { return ((i64)a * (i64)w.x[1] + b) * (i64)w.x[2] + c; }

#ifdef POOL
// Sums of pieces, or the position of the largest element. [n·c, x…] to [n·c, y…].
extern "C" __global__ void k(Window w) {
  u64 at = thread_index(); if (at >= w.count) return;
  Ix q = (Ix)at; Ii from[3], to[3], step[3];
#pragma unroll
  for (int d = 2; d >= 0; d--) { piece(w, d, (Ii)(q % (Ix)w.y[d]), from[d], to[d], step[d]); q /= (Ix)w.y[d]; }
  const E* x = (const E*)w.p[0] + (i64)(q / (Ix)w.c) * w.s[0] + (i64)(q % (Ix)w.c) * w.s[1];
  C best = 0; i64 where = -1;
  for (Ii a = from[0]; a < to[0]; a += step[0]) for (Ii b = from[1]; b < to[1]; b += step[1]) for (Ii c = from[2]; c < to[2]; c += step[2]) {
    C v = load(x[a * w.s[2] + b * w.s[3] + c * w.s[4]]);
#ifdef ARGMAX
    if (where < 0 || v > best || v != v) { best = v; where = place(w, a, b, c); }
#else
    best = b_add(best, v);
#endif
  }
#ifdef ARGMAX
  ((i64*)w.p[1])[at] = where < 0 ? 0 : where;
#else
  store(((E*)w.p[1])[at], best);
#endif
}
#endif

// Where the pieces of the last axis are its elements, such as channels, a thread has `VEC` of them.
#if defined(POOL_EACH) || defined(GIVE_EACH)
struct alignas(VEC * sizeof(E)) V { E e[VEC]; };
struct alignas(16) Places { i64 v[2]; };
#endif

#ifdef POOL_EACH
// The position of the largest element.
extern "C" __global__ void __launch_bounds__(256) k(Window w) {
  u64 at = thread_index(); if (at >= w.count) return;
  Ix q = (Ix)at; Ii from[2], to[2], step[2];
  const Ix vectors = (Ix)w.y[2] / VEC;
  const Ii c = (Ii)(q % vectors) * VEC; q /= vectors;
#pragma unroll
  for (int d = 1; d >= 0; d--) { piece(w, d, (Ii)(q % (Ix)w.y[d]), from[d], to[d], step[d]); q /= (Ix)w.y[d]; }
  const E* x = (const E*)w.p[0] + (i64)(q / (Ix)w.c) * w.s[0] + (i64)(q % (Ix)w.c) * w.s[1] + c;
  C best[VEC]; Ii where[VEC];
  bool some = false;
#pragma unroll
  for (int e = 0; e < VEC; e++) { best[e] = 0; where[e] = 0; }
  for (Ii a = from[0]; a < to[0]; a += step[0]) for (Ii b = from[1]; b < to[1]; b += step[1]) {
    const V v = *(const V*)(x + a * w.s[2] + b * w.s[3]);
    const Ii here = a * (Ii)w.x[1] + b;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      const C u = load(v.e[e]);
      if (!some || u > best[e] || u != u) { best[e] = u; where[e] = here; }
    }
    some = true;
  }
  Places* out = (Places*)((i64*)w.p[1] + at * VEC);
#pragma unroll
  for (int e = 0; e < VEC; e += 2) {
    const i64 n = (i64)w.x[2];
    Places two = {{some ? where[e] * n + c + e : 0, some ? where[e + 1] * n + c + e + 1 : 0}};
    out[e / 2] = two;
  }
}
#endif

#ifdef GIVE_EACH
// A position adds up the pieces that chose it, in their order.
extern "C" __global__ void __launch_bounds__(256) k(Window w) {
  u64 at = thread_index(); if (at >= w.count) return;
  Ix q = (Ix)at; Ii x[2], low[2], high[2]; bool all[2];
  const Ix vectors = (Ix)w.x[2] / VEC;
  const Ii c = (Ii)(q % vectors) * VEC; q /= vectors;
#pragma unroll
  for (int d = 1; d >= 0; d--) { x[d] = (Ii)(q % (Ix)w.x[d]); q /= (Ix)w.x[d]; all[d] = around(w, d, x[d], low[d], high[d]); }
  const E* y = (const E*)w.p[0] + (i64)(q / (Ix)w.c) * w.s[0] + (i64)(q % (Ix)w.c) * w.s[1] + c;
  const i64* places = (const i64*)w.p[2] + (u64)q * (w.y[0] * w.y[1] * w.y[2]) + c;
  const i64 mine = place(w, x[0], x[1], c);
  C sum[VEC];
#pragma unroll
  for (int e = 0; e < VEC; e++) sum[e] = 0;
  for (Ii a = low[0]; a <= high[0]; a++) for (Ii b = low[1]; b <= high[1]; b++) {
    if (!all[0] && !has(w, 0, a, x[0]) || !all[1] && !has(w, 1, b, x[1])) continue;
    const Places* chosen = (const Places*)(places + ((i64)a * (i64)w.y[1] + b) * (i64)w.y[2]);
    const V g = *(const V*)(y + a * w.s[2] + b * w.s[3]);
#pragma unroll
    for (int e = 0; e < VEC; e += 2) {
      const Places two = chosen[e / 2];
      if (two.v[0] == mine + e) sum[e] = b_add(sum[e], load(g.e[e]));
      if (two.v[1] == mine + e + 1) sum[e + 1] = b_add(sum[e + 1], load(g.e[e + 1]));
    }
  }
  V to;
#pragma unroll
  for (int e = 0; e < VEC; e++) store(to.e[e], sum[e]);
  ((V*)w.p[1])[at] = to;
}
#endif

#ifdef TAKE
// The elements at positions in pieces: [n·c, x…] to [n·c, y…].
extern "C" __global__ void k(Window w) {
  u64 at = thread_index(); if (at >= w.count) return;
  Ix q = (Ix)at; Ii y[3];
#pragma unroll
  for (int d = 2; d >= 0; d--) { y[d] = (Ii)(q % (Ix)w.y[d]); q /= (Ix)w.y[d]; }
  const E* x = (const E*)w.p[0] + (i64)(q / (Ix)w.c) * w.s[0] + (i64)(q % (Ix)w.c) * w.s[1];
  const i64 chosen = ((const i64*)w.p[2])[at];
  E taken; store(taken, (C)0);
  if (chosen >= 0 && chosen < (i64)(w.x[0] * w.x[1] * w.x[2])) {
    Ix p = (Ix)chosen;
    const Ii c = (Ii)(p % (Ix)w.x[2]); p /= (Ix)w.x[2];
    const Ii b = (Ii)(p % (Ix)w.x[1]), a = (Ii)(p / (Ix)w.x[1]);
    if (has(w, 0, y[0], a) && has(w, 1, y[1], b) && has(w, 2, y[2], c))
      taken = x[a * w.s[2] + b * w.s[3] + c * w.s[4]];
  }
  ((E*)w.p[1])[at] = taken;
}
#endif

#ifdef GIVE
// The transpose: [n·c, y…] to [n·c, x…]. A position adds up the pieces that chose it, in their
// order.
extern "C" __global__ void k(Window w) {
  u64 at = thread_index(); if (at >= w.count) return;
  Ix q = (Ix)at; Ii x[3], low[3], high[3]; bool all = true;
#pragma unroll
  for (int d = 2; d >= 0; d--) { x[d] = (Ii)(q % (Ix)w.x[d]); q /= (Ix)w.x[d]; all = around(w, d, x[d], low[d], high[d]) && all; }
  const E* y = (const E*)w.p[0] + (i64)(q / (Ix)w.c) * w.s[0] + (i64)(q % (Ix)w.c) * w.s[1];
  const i64* places = (const i64*)w.p[2] + (u64)q * (w.y[0] * w.y[1] * w.y[2]);
  const i64 mine = place(w, x[0], x[1], x[2]);
  C sum = 0;
  for (Ii a = low[0]; a <= high[0]; a++) for (Ii b = low[1]; b <= high[1]; b++) for (Ii c = low[2]; c <= high[2]; c++) {
    if (places[((i64)a * (i64)w.y[1] + b) * (i64)w.y[2] + c] != mine) continue;
    if (all || has(w, 0, a, x[0]) && has(w, 1, b, x[1]) && has(w, 2, c, x[2]))
      sum = b_add(sum, load(y[a * w.s[2] + b * w.s[3] + c * w.s[4]]));
  }
  store(((E*)w.p[1])[at], sum);
}
#endif

#ifdef SPREAD
// The transpose of a sum: [n·c, y…] to [n·c, x…], in the order of pieces.
extern "C" __global__ void k(Window w) {
  u64 at = thread_index(); if (at >= w.count) return;
  Ix q = (Ix)at; Ii x[3], low[3], high[3]; bool all = true;
#pragma unroll
  for (int d = 2; d >= 0; d--) { x[d] = (Ii)(q % (Ix)w.x[d]); q /= (Ix)w.x[d]; all = around(w, d, x[d], low[d], high[d]) && all; }
  const E* y = (const E*)w.p[0] + (i64)(q / (Ix)w.c) * w.s[0] + (i64)(q % (Ix)w.c) * w.s[1];
  C sum = 0;
  for (Ii a = low[0]; a <= high[0]; a++) for (Ii b = low[1]; b <= high[1]; b++) for (Ii c = low[2]; c <= high[2]; c++) {
    if (all || has(w, 0, a, x[0]) && has(w, 1, b, x[1]) && has(w, 2, c, x[2])) sum = b_add(sum, load(y[a * w.s[2] + b * w.s[3] + c * w.s[4]]));
  }
  store(((E*)w.p[1])[at], sum);
}
#endif
