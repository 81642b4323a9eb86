// Attention that stores no scores, by tensor cores: FORWARD, and for the vjp ROWS (sums of
// queries), DQ and DKV; and FEW, forward of few queries, where a block has one. Of the others, a
// block holds a tile of BM rows (queries, or keys in DKV), a warp 16·MT of them; the other side
// comes in tiles of BN rows, the next one on its way while this one is used. Scores, or their
// transposes in DKV, stay in registers: a result of one product is a left factor of the next.
//
// E is the dtype, D the width of queries and keys, W that of values, multiples of 8. MASK is 1 for
// one that hides and 2 for one that is added. f32 is multiplied as TF32; EXACT adds the products
// with what TF32 leaves out, and sums each tile before it is added.

#define THREADS (32 * WARPS)
#define BM (16 * MT * WARPS)
#define EACH(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)
#define LOG2_E 1.4426950408889634f
#define LN_2 0.69314718055994531f
#define NEVER __int_as_float((int)0xff800000)
constexpr bool NARROW = sizeof(E) == 2;
// Elements in 16 bytes; length of the inner axis of an instruction.
constexpr int PER = 16 / (int)sizeof(E), STEP = 2 * PER;
// Rows in shared memory: zeros up to a multiple of 16 elements, then 16 bytes that are not used, so
// that eight rows begin in different banks.
constexpr int PD = (D + 15) / 16 * 16, PW = (W + 15) / 16 * 16;
template <int N> struct Row { static constexpr int bytes = N * (int)sizeof(E) + 16; };
// Tiles of the other side: keys or queries, values or cotangents, (in DKV) numbers of queries.
constexpr int NEAR = BN * Row<PD>::bytes, FAR = BN * Row<PW>::bytes, STAGE = NEAR + FAR + 8 * BN;

// Memory: an element of a head, batch and row; strides in elements.
struct View { char* at; i64 batch, head, row; };
struct Params {
  View q, k, v, o, lse, dy, dq, dk, dv, mask;
  // The step of the mask along keys; of each query the log-sum-exp of base 2, and Σ dy·o.
  i64 step; float2* rows;
  i64 batch, heads, groups, queries, keys; double scale;
};
template <class T> FN T* of_head(const View& x, int b, int h) {
  return (T*)x.at + b * x.batch + h * x.head;
}

// What tensor cores take of elements of f32, and what that leaves out: 11 bits of mantissa each, to
// nearest. (If the first is not the number nearest to NaN, the second is NaN.)
template <int N> struct Parts {
  u32 x[N], y[N];
  FN Parts(const u32* all) {
    EACH(i, N) {
      x[i] = all[i];
      if (NARROW || !EXACT) continue;
      x[i] = (x[i] + 0x1000) & 0xffffe000;
      y[i] = __float_as_uint(__uint_as_float(all[i]) - __uint_as_float(x[i]));
    }
  }
};
// Tensor cores round sums towards zero: what is small is summed apart, so that only one product of
// three is added to a large sum.
FN void add_product(float* c, float* rest, const Parts<4>& a, const Parts<2>& b) {
  if (EXACT) { mma(E(), rest, a.y, b.x); mma(E(), rest, a.x, b.y); }
  mma(E(), c, a.x, b.x);
}
// Where a lane loads from, in a tile with rows of so many bytes: of a left factor, of the transpose
// of a right one, of a right one. What is added to that is constant.
FN u32 left_of(int bytes) {
  const int lane = threadIdx.x & 31;
  return (lane & 15) * bytes + (lane >> 4) * 16;
}
FN u32 across_of(int bytes) {
  const int lane = threadIdx.x & 31;
  return ((lane & 7) + ((lane >> 4) << 3)) * bytes + ((lane >> 3) & 1) * 16;
}
FN u32 down_of(int bytes) {
  const int lane = threadIdx.x & 31;
  return NARROW ? left_of(bytes) : (lane & 3) * 2 * bytes + (lane >> 2) * 4;
}
// Of STEP rows from `at` on: 16 columns, two factors. Rows of f32 are in the order of `weights`.
FN void load_down(u32* r, u32 at, int bytes) {
  if (NARROW) load4_transposed(r, at);
  else EACH(i, 4) r[i] = load_word(at + (i & 1) * bytes + i / 2 * 32);
}
// Results as left factors. Of f32 the inner axis is permuted: (t, t + 4) are elements (2t, 2t + 1).
FN void weights(u32 (*f)[4], float (*x)[4]) {
  EACH(s, BN / STEP) {
    EACH(i, 4) {
      if (NARROW) {
        const float* c = x[2 * s + i / 2] + (i & 1) * 2;
        f[s][i] = word(E(), c[0], c[1]);
      } else {
        const float c = x[s][(i & 1) * 2 + i / 2];
        f[s][i] = EXACT ? __float_as_uint(c) : to_tf32(c);
      }
    }
  }
}

// The chunks of 16 bytes that this thread moves of a tile of N rows, in one column where that is
// possible.
template <int N, int P> struct Chunks {
  static constexpr int WIDE = P / PER, ALL = N * WIDE, COUNT = (ALL + THREADS - 1) / THREADS;
  static constexpr bool STRAIGHT = THREADS % WIDE == 0;
  FN static int row(int i) {
    const int first = threadIdx.x / WIDE;
    return STRAIGHT ? first + i * (THREADS / WIDE) : (i * THREADS + threadIdx.x) / WIDE;
  }
  FN static int column(int i) {
    return STRAIGHT ? threadIdx.x % WIDE : (i * THREADS + threadIdx.x) % WIDE;
  }
  FN static bool any(int i) { return ALL % THREADS == 0 || i * THREADS + threadIdx.x < ALL; }
  FN static u32 at(int i) { return row(i) * Row<P>::bytes + column(i) * 16; }
};
// A tile of rows from `first` on, of `count` in all.
template <int N, int P, int WIDTH>
FN void tile(u32 to, const E* from, i64 stride, int first, int count) {
  typedef Chunks<N, P> Of;
  const E* x = from + first * stride;
  EACH(i, Of::COUNT) {
    const bool real = Of::row(i) < count - first && Of::column(i) * PER < WIDTH;
    const E* at = real ? x + Of::row(i) * stride + Of::column(i) * PER : from;
    if (Of::any(i)) copy16(to + Of::at(i), at, real);
  }
}
// The elements of a tile that this thread has copied, rounded to TF32 where products are of that.
template <int N, int P> FN void round_tile(u32 to) {
  if (NARROW || EXACT) return;
  typedef Chunks<N, P> Of;
  // All are loaded before the first is stored, eight at a time.
  EACH(from, (Of::COUNT + 7) / 8) {
    float x[8][4];
    EACH(j, 8) {
      const int i = from * 8 + j;
      if (i < Of::COUNT && Of::any(i)) load_four(x[j], to + Of::at(i));
    }
    EACH(j, 8) {
      const int i = from * 8 + j;
      if (i < Of::COUNT && Of::any(i)) store_rounded(to + Of::at(i), x[j]);
    }
  }
}
// x = a·bᵀ of 16·MT rows and BN rows. Factors of the next step are loaded before they are needed.
template <int P> FN void across(float (*x)[BN / 8][4], u32 a, u32 b) {
  constexpr int bytes = Row<P>::bytes, STEPS = P / STEP;
  a += left_of(bytes);
  b += across_of(bytes);
  float rest[MT][BN / 8][4] = {};
  u32 f[2][MT][4], r[2][BN / 16][4];
  EACH(m, MT) EACH(n, BN / 8) EACH(e, 4) x[m][n][e] = 0.f;
  EACH(m, MT) load4(f[0][m], a + m * 16 * bytes);
  EACH(n, BN / 16) load4(r[0][n], b + n * 16 * bytes);
  EACH(s, STEPS) {
    if (s + 1 < STEPS) {
      EACH(m, MT) load4(f[(s + 1) & 1][m], a + m * 16 * bytes + (s + 1) * 32);
      EACH(n, BN / 16) load4(r[(s + 1) & 1][n], b + n * 16 * bytes + (s + 1) * 32);
    }
    EACH(m, MT) {
      const Parts<4> left(f[s & 1][m]);
      EACH(n, BN / 8)
        add_product(x[m][n], rest[m][n], left, Parts<2>(r[s & 1][n / 2] + n % 2 * 2));
    }
  }
  if (EXACT) EACH(m, MT) EACH(n, BN / 8) EACH(e, 4) x[m][n][e] += rest[m][n][e];
}
// x += a·b of 16·MT rows with one element for each of the BN rows of b.
template <int P> FN void down(float (*x)[P / 8][4], float (*a)[BN / 8][4], u32 b) {
  constexpr int bytes = Row<P>::bytes, STEPS = BN / STEP, COLUMNS = P / 16;
  u32 f[MT][STEPS][4], r[2][4];
  EACH(m, MT) weights(f[m], a[m]);
  b += down_of(bytes);
  load_down(r[0], b, bytes);
  // Step by step; where sums of a tile are apart, column by column.
  float sum[MT][2][4], rest[MT][2][4];
  EACH(i, STEPS * COLUMNS) {
    const int s = EXACT ? i % STEPS : i / COLUMNS, n = EXACT ? i / STEPS : i % COLUMNS;
    const int s1 = EXACT ? (i + 1) % STEPS : (i + 1) / COLUMNS;
    const int n1 = EXACT ? (i + 1) / STEPS : (i + 1) % COLUMNS;
    if (i + 1 < STEPS * COLUMNS)
      load_down(r[(i + 1) & 1], b + s1 * STEP * bytes + n1 * 16 * (int)sizeof(E), bytes);
    if (EXACT && s == 0)
      EACH(m, MT) EACH(j, 2) EACH(e, 4) sum[m][j][e] = rest[m][j][e] = 0.f;
    EACH(m, MT)
      EACH(j, 2)
        add_product(EXACT ? sum[m][j] : x[m][2 * n + j], rest[m][j], Parts<4>(f[m][s]),
                    Parts<2>(r[i & 1] + j * 2));
    if (EXACT && s == STEPS - 1)
      EACH(m, MT) EACH(j, 2) EACH(e, 4) x[m][2 * n + j][e] += sum[m][j][e] + rest[m][j][e];
  }
}
FN void store_two(E* to, float a, float b) {
  if (NARROW) *(u32*)to = word(E(), a, b);
  else *(float2*)to = make_float2(a, b);
}
// Rows of a result, times a number, from row `first` of `count` on.
template <int P, int WIDTH>
FN void write(E* to, i64 stride, int first, int count, float (*x)[P / 8][4], float by) {
  const int lane = threadIdx.x & 31;
  EACH(m, MT)
    EACH(half, 2) {
      const int row = first + m * 16 + half * 8 + (lane >> 2);
      if (row >= count) continue;
      EACH(n, WIDTH / 8)
        store_two(to + row * stride + n * 8 + (lane & 3) * 2, x[m][n][half * 2] * by,
                  x[m][n][half * 2 + 1] * by);
    }
}
// A score, of base 2, as the mask of its head has it.
template <class M> FN float masked(const Params& p, const M* mask, float x, int query, int key) {
#if MASK
  if (query < (int)p.queries && key < (int)p.keys) {
    const M m = mask[query * p.mask.row + key * p.step];
    x = MASK == 1 ? (load(m) != 0 ? x : NEVER) : x + (float)load(m) * LOG2_E;
  }
#endif
  return x;
}
#if MASK == 1
typedef Bool M;
#else
typedef E M;
#endif
// Scores of queries from `query` on and keys from `key` on; if keys that are not seen are among
// them, those too.
FN void scaled(const Params& p, const M* mask, float (*x)[BN / 8][4], float scale, int query,
               int key, bool edge) {
  const int lane = threadIdx.x & 31, keys = p.keys;
  query += lane >> 2;
  key += (lane & 3) * 2;
  EACH(m, MT)
    EACH(n, BN / 8)
      EACH(e, 4) {
        const int i = query + m * 16 + e / 2 * 8, j = key + n * 8 + (e & 1);
        x[m][n][e] = masked(p, mask, x[m][n][e] * scale, i, j);
      }
  if (!edge) return;
  EACH(m, MT)
    EACH(e, 4) {
      const int i = query + m * 16 + e / 2 * 8;
      const int seen = (CAUSAL && i < keys ? i + 1 : keys) - key;
      EACH(n, BN / 8) if (n * 8 + (e & 1) >= seen) x[m][n][e] = NEVER;
    }
}

#ifdef FORWARD
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) k(Params p) {
  extern __shared__ __align__(128) char memory[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int heads = p.heads, queries = p.queries, keys = p.keys;
  const int blocks = (queries + BM - 1) / BM, nth = blockIdx.x / blocks;
  const int b = nth / heads, h = nth % heads, shared = h / (heads / (int)p.groups);
  // With a causal mask the last queries take longest.
  const int first = (blocks - 1 - (int)blockIdx.x % blocks) * BM, own = first + warp * 16 * MT;
  const E *k = of_head<const E>(p.k, b, shared), *v = of_head<const E>(p.v, b, shared);
  const M* mask = of_head<const M>(p.mask, b, h);
  const u32 sq = shared_address(memory), stages = sq + BM * Row<PD>::bytes;
  const int reach = CAUSAL && first + BM < keys ? first + BM : keys, count = (reach + BN - 1) / BN;
  tile<BM, PD, D>(sq, of_head<const E>(p.q, b, h), p.q.row, first, queries);
  tile<BN, PD, D>(stages, k, p.k.row, 0, keys);
  tile<BN, PW, W>(stages + NEAR, v, p.v.row, 0, keys);
  const float scale = (float)(p.scale * 1.4426950408889634);
  wait_for_copies();
  round_tile<BM, PD>(sq);
  float o[MT][PW / 8][4] = {}, top[MT][2], sum[MT][2];
  EACH(m, MT) EACH(half, 2) { top[m][half] = NEVER; sum[m][half] = 0.f; }
  for (int j = 0; j < count; j++) {
    const u32 near = stages + (j & 1) * STAGE, next = stages + (~j & 1) * STAGE;
    wait_for_copies();
    round_tile<BN, PD>(near);
    round_tile<BN, PW>(near + NEAR);
    __syncthreads();
    if (j + 1 < count) {
      tile<BN, PD, D>(next, k, p.k.row, (j + 1) * BN, keys);
      tile<BN, PW, W>(next + NEAR, v, p.v.row, (j + 1) * BN, keys);
    }
    // All of these keys come after the queries of this warp, or it has none.
    if (own >= queries || (CAUSAL && j * BN >= own + 16 * MT)) continue;
    float x[MT][BN / 8][4];
    across<PD>(x, sq + warp * 16 * MT * Row<PD>::bytes, near);
    const bool edge = (j + 1) * BN > keys || (CAUSAL && (j + 1) * BN > own + 1);
    scaled(p, mask, x, scale, own, j * BN, edge);
    EACH(m, MT) {
      EACH(half, 2) {
        float most = top[m][half];
        EACH(n, BN / 8) EACH(e, 2) most = fmaxf(most, x[m][n][half * 2 + e]);
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        // A query that sees no key so far has weights of zero, not of NaN.
        const float shift = most == NEVER ? 0.f : most;
        const float fade = power_of_two(top[m][half] - shift);
        top[m][half] = most;
        float total = sum[m][half] * fade;
        EACH(n, BN / 8)
          EACH(e, 2) {
            float& y = x[m][n][half * 2 + e];
            y = power_of_two(y - shift);
            total += y;
          }
        sum[m][half] = total;
        EACH(n, PW / 8) { o[m][n][half * 2] *= fade; o[m][n][half * 2 + 1] *= fade; }
      }
    }
    down<PW>(o, x, near + NEAR);
  }
  float* lse = of_head<float>(p.lse, b, h);
  EACH(m, MT)
    EACH(half, 2) {
      float total = sum[m][half];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const float most = top[m][half];
      const bool none = most == NEVER && total == 0.f;
      const float by = none ? 0.f : 1.f / total;
      EACH(n, PW / 8) { o[m][n][half * 2] *= by; o[m][n][half * 2 + 1] *= by; }
      const int query = own + m * 16 + half * 8 + (lane >> 2);
      const float log = none ? NEVER : (most == NEVER ? 0.f : most * LN_2) + logf(total);
      if ((lane & 3) == 0 && query < queries) lse[query * p.lse.row] = log;
    }
  write<PW, W>(of_head<E>(p.o, b, h), p.o.row, own, queries, o, 1.f);
}
#endif

#ifdef ROWS
// Eight threads a query.
extern "C" __global__ void __launch_bounds__(256) k(Params p) {
  const i64 at = (blockIdx.x * 256ll + threadIdx.x) / 8;
  const int heads = p.heads, queries = p.queries;
  const i64 nth = at / queries;
  const int b = nth / heads, h = nth % heads, query = at % queries;
  const bool real = b < (int)p.batch;
  float sum = 0.f;
  if (real) {
    const E* o = of_head<const E>(p.o, b, h) + query * p.o.row;
    const E* dy = of_head<const E>(p.dy, b, h) + query * p.dy.row;
    for (int c = threadIdx.x % 8 * PER; c < W; c += 8 * PER) {
      struct __align__(16) Some { E e[PER]; };
      const Some x = *(const Some*)(o + c), y = *(const Some*)(dy + c);
      EACH(e, PER) sum += load(x.e[e]) * load(y.e[e]);
    }
  }
  EACH(i, 3) sum += __shfl_xor_sync(~0u, sum, 1 << i);
  if (real && threadIdx.x % 8 == 0) {
    const float lse = of_head<const float>(p.lse, b, h)[query * p.lse.row];
    // That of a query that sees no key is minus infinity: any number keeps its weights at zero.
    p.rows[at] = make_float2(lse == NEVER ? 0.f : lse * LOG2_E, sum);
  }
}
#endif

#ifdef DQ
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) k(Params p) {
  extern __shared__ __align__(128) char memory[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int heads = p.heads, queries = p.queries, keys = p.keys;
  const int blocks = (queries + BM - 1) / BM, nth = blockIdx.x / blocks;
  const int b = nth / heads, h = nth % heads, shared = h / (heads / (int)p.groups);
  const int first = (blocks - 1 - (int)blockIdx.x % blocks) * BM, own = first + warp * 16 * MT;
  const E *k = of_head<const E>(p.k, b, shared), *v = of_head<const E>(p.v, b, shared);
  const M* mask = of_head<const M>(p.mask, b, h);
  const u32 sq = shared_address(memory), sdy = sq + BM * Row<PD>::bytes;
  const u32 stages = sdy + BM * Row<PW>::bytes;
  const int reach = CAUSAL && first + BM < keys ? first + BM : keys, count = (reach + BN - 1) / BN;
  tile<BM, PD, D>(sq, of_head<const E>(p.q, b, h), p.q.row, first, queries);
  tile<BM, PW, W>(sdy, of_head<const E>(p.dy, b, h), p.dy.row, first, queries);
  tile<BN, PD, D>(stages, k, p.k.row, 0, keys);
  tile<BN, PW, W>(stages + NEAR, v, p.v.row, 0, keys);
  const float scale = (float)(p.scale * 1.4426950408889634);
  wait_for_copies();
  round_tile<BM, PD>(sq);
  round_tile<BM, PW>(sdy);
  float dq[MT][PD / 8][4] = {};
  float2 row[MT][2];
  EACH(m, MT)
    EACH(half, 2) {
      const int query = own + m * 16 + half * 8 + (lane >> 2);
      row[m][half] = make_float2(0.f, 0.f);
      if (query < queries) row[m][half] = p.rows[(i64)nth * queries + query];
    }
  for (int j = 0; j < count; j++) {
    const u32 near = stages + (j & 1) * STAGE, next = stages + (~j & 1) * STAGE;
    wait_for_copies();
    round_tile<BN, PD>(near);
    round_tile<BN, PW>(near + NEAR);
    __syncthreads();
    if (j + 1 < count) {
      tile<BN, PD, D>(next, k, p.k.row, (j + 1) * BN, keys);
      tile<BN, PW, W>(next + NEAR, v, p.v.row, (j + 1) * BN, keys);
    }
    if (own >= queries || (CAUSAL && j * BN >= own + 16 * MT)) continue;
    float x[MT][BN / 8][4], dx[MT][BN / 8][4];
    across<PD>(x, sq + warp * 16 * MT * Row<PD>::bytes, near);
    across<PW>(dx, sdy + warp * 16 * MT * Row<PW>::bytes, near + NEAR);
    const bool edge = (j + 1) * BN > keys || (CAUSAL && (j + 1) * BN > own + 1);
    scaled(p, mask, x, scale, own, j * BN, edge);
    EACH(m, MT)
      EACH(n, BN / 8)
        EACH(e, 4) {
          const float2 of = row[m][e / 2];
          dx[m][n][e] = power_of_two(x[m][n][e] - of.x) * (dx[m][n][e] - of.y);
        }
    down<PD>(dq, dx, near);
  }
  write<PD, D>(of_head<E>(p.dq, b, h), p.dq.row, own, queries, dq, (float)p.scale);
}
#endif

#ifdef DKV
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) k(Params p) {
  extern __shared__ __align__(128) char memory[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int heads = p.heads, groups = p.groups, queries = p.queries, keys = p.keys;
  const int blocks = (keys + BM - 1) / BM, nth = blockIdx.x / blocks, each = heads / groups;
  const int b = nth / groups, shared = nth % groups;
  const int first = (int)blockIdx.x % blocks * BM, own = first + warp * 16 * MT;
  const u32 sk = shared_address(memory), sv = sk + BM * Row<PD>::bytes;
  const u32 stages = sv + BM * Row<PW>::bytes;
  // Tiles of the queries that may see these keys, of one head after the other.
  const int from = CAUSAL ? first / BN : 0, upto = (queries + BN - 1) / BN;
  const int of_one = upto > from ? upto - from : 0, count = each * of_one;
  auto fetch = [&](u32 to, int i) {
    const int h = shared * each + i / of_one, at = (from + i % of_one) * BN;
    tile<BN, PD, D>(to, of_head<const E>(p.q, b, h), p.q.row, at, queries);
    tile<BN, PW, W>(to + NEAR, of_head<const E>(p.dy, b, h), p.dy.row, at, queries);
    const float2* rows = p.rows + (i64)(b * heads + h) * queries;
    if (threadIdx.x < BN) {
      const int query = at + threadIdx.x;
      const bool real = query < queries;
      copy8(to + NEAR + FAR + threadIdx.x * 8, real ? rows + query : rows, real);
    }
  };
  tile<BM, PD, D>(sk, of_head<const E>(p.k, b, shared), p.k.row, first, keys);
  tile<BM, PW, W>(sv, of_head<const E>(p.v, b, shared), p.v.row, first, keys);
  if (count > 0) fetch(stages, 0);
  const float scale = (float)(p.scale * 1.4426950408889634);
  wait_for_copies();
  round_tile<BM, PD>(sk);
  round_tile<BM, PW>(sv);
  float dk[MT][PD / 8][4] = {}, dv[MT][PW / 8][4] = {};
  for (int i = 0; i < count; i++) {
    const u32 near = stages + (i & 1) * STAGE;
    wait_for_copies();
    round_tile<BN, PD>(near);
    round_tile<BN, PW>(near + NEAR);
    __syncthreads();
    if (i + 1 < count) fetch(stages + (~i & 1) * STAGE, i + 1);
    const int start = (from + i % of_one) * BN;
    // All of these queries come before the keys of this warp, or it has none.
    if (own >= keys || (CAUSAL && start + BN <= own)) continue;
    float x[MT][BN / 8][4], dx[MT][BN / 8][4];
    across<PD>(x, sk + warp * 16 * MT * Row<PD>::bytes, near);
    across<PW>(dx, sv + warp * 16 * MT * Row<PW>::bytes, near + NEAR);
    const M* mask = of_head<const M>(p.mask, b, shared * each + i / of_one);
    const bool edge = CAUSAL && start < own + 16 * MT;
    // Queries and keys after the last are zeros, and add nothing.
    EACH(n, BN / 8)
      EACH(e, 2) {
        const int column = n * 8 + (lane & 3) * 2 + e, query = start + column;
        const float2 of = load_two(near + NEAR + FAR + column * 8);
        EACH(m, MT)
          EACH(half, 2) {
            const int key = own + m * 16 + half * 8 + (lane >> 2), c = half * 2 + e;
            x[m][n][c] = masked(p, mask, x[m][n][c] * scale, query, key) - of.x;
            dx[m][n][c] -= of.y;
          }
      }
    if (edge) {
      EACH(m, MT)
        EACH(half, 2) {
          const int hidden = own + m * 16 + half * 8 + (lane >> 2) - start - (lane & 3) * 2;
          EACH(n, BN / 8)
            EACH(e, 2) if (n * 8 + e < hidden) x[m][n][half * 2 + e] = NEVER;
        }
    }
    EACH(m, MT)
      EACH(n, BN / 8)
        EACH(e, 4) {
          x[m][n][e] = power_of_two(x[m][n][e]);
          dx[m][n][e] *= x[m][n][e];
        }
    down<PW>(dv, x, near + NEAR);
    down<PD>(dk, dx, near);
  }
  const i64 to = p.dk.row;
  write<PD, D>(of_head<E>(p.dk, b, shared), to, own, keys, dk, (float)p.scale);
  write<PW, W>(of_head<E>(p.dv, b, shared), p.dv.row, own, keys, dv, 1.f);
}
#endif

#ifdef FEW
// Each element of 16 bytes of a row has a lane; rows are dealt out to PARTS groups of lanes, each
// of which has a softmax of its own.
constexpr int WIDER = (D > W ? D : W) / PER;
constexpr int LANES = WIDER > 16 ? 32 : WIDER > 8 ? 16 : WIDER > 4 ? 8 : WIDER > 2 ? 4 : WIDER;
constexpr int PARTS = THREADS / LANES, AT_ONCE = 8;
struct __align__(16) Some { u32 word[4]; };
FN float element(const Some& x, int e) {
  E y;
  if (NARROW) y.v = (u16)(x.word[e / 2] >> (e % 2 * 16));
  else y.v = __uint_as_float(x.word[e % 4]);
  return load(y);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) k(Params p) {
  extern __shared__ __align__(128) char memory[];
  const int heads = p.heads, queries = p.queries, keys = p.keys;
  const int query = blockIdx.x % queries, nth = blockIdx.x / queries;
  const int b = nth / heads, h = nth % heads, shared = h / (heads / (int)p.groups);
  const int part = threadIdx.x / LANES, at = threadIdx.x % LANES * PER;
  const int reach = CAUSAL && query < keys ? query + 1 : keys;
  const E *q = of_head<const E>(p.q, b, h) + query * p.q.row + at;
  const E *k = of_head<const E>(p.k, b, shared) + at, *v = of_head<const E>(p.v, b, shared) + at;
  const M* mask = of_head<const M>(p.mask, b, h);
  const float scale = (float)(p.scale * 1.4426950408889634);
  float x[PER] = {}, o[PER] = {}, top = NEVER, sum = 0.f;
  if (at < D) {
    const Some some = *(const Some*)q;
    EACH(e, PER) x[e] = element(some, e) * scale;
  }
  for (int start = part; start - part < reach; start += PARTS * AT_ONCE) {
    Some ks[AT_ONCE] = {}, vs[AT_ONCE] = {};
    EACH(i, AT_ONCE) {
      const int key = start + i * PARTS;
      if (key < reach && at < D) ks[i] = *(const Some*)(k + key * p.k.row);
      if (key < reach && at < W) vs[i] = *(const Some*)(v + key * p.v.row);
    }
    float score[AT_ONCE], most = top;
    EACH(i, AT_ONCE) {
      float y = 0.f;
      EACH(e, PER) y += x[e] * element(ks[i], e);
      for (int d = LANES / 2; d > 0; d /= 2) y += __shfl_xor_sync(~0u, y, d);
      const int key = start + i * PARTS;
      score[i] = key < reach ? masked(p, mask, y, query, key) : NEVER;
      most = fmaxf(most, score[i]);
    }
    const float shift = most == NEVER ? 0.f : most, fade = power_of_two(top - shift);
    top = most;
    sum *= fade;
    EACH(e, PER) o[e] *= fade;
    EACH(i, AT_ONCE) {
      const float weight = power_of_two(score[i] - shift);
      sum += weight;
      EACH(e, PER) o[e] += weight * element(vs[i], e);
    }
  }
  // Of all parts, in order.
  float *tops = (float*)memory, *sums = tops + PARTS, *values = sums + PARTS;
  if (threadIdx.x % LANES == 0) { tops[part] = top; sums[part] = sum; }
  EACH(e, PER) if (at + e < W) values[part * W + at + e] = o[e];
  __syncthreads();
  for (int c = threadIdx.x; c < W; c += THREADS) {
    float most = NEVER, total = 0.f, y = 0.f;
    for (int i = 0; i < PARTS; i++) most = fmaxf(most, tops[i]);
    const float shift = most == NEVER ? 0.f : most;
    for (int i = 0; i < PARTS; i++) {
      const float fade = power_of_two(tops[i] - shift);
      total += sums[i] * fade;
      y += values[i * W + c] * fade;
    }
    const bool none = most == NEVER && total == 0.f;
    store(of_head<E>(p.o, b, h)[query * p.o.row + c], none ? 0.f : y / total);
    const float log = none ? NEVER : shift * LN_2 + logf(total);
    if (c == 0) of_head<float>(p.lse, b, h)[query * p.lse.row] = log;
  }
}
#endif
