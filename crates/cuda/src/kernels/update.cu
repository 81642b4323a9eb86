// Steps of optimisers in one pass, as on the CPU (crates/cpu/src/update.rs): all that follow one
// another are one kernel, and a block has a part of one of them. `E` is the element, `C` its
// compute type, `R` the element of the learning rate, STATES the number of states of a parameter,
// MOST that of the steps that fit, CHUNK the elements of a block. All operands are dense; a thread
// reads its elements of each before it writes.

struct Step {
  u64 out[1 + STATES];  // new parameter and states
  u64 x[2 + STATES];    // parameter, states, gradient
  u64 count;            // the number of the step
  u64 n;                // elements
  u64 end;              // blocks of the steps up to this one
};
struct Update {
  u64 rate;
  u64 stop;     // set after a kernel has rejected a value: no update until it is reported
  u64 steps;
  double v[4];  // numbers of the rule
  Step of[MOST];
};
#if __CUDA_ARCH__ >= 700
#define CONSTANT __grid_constant__
#else
#define CONSTANT
#endif

// The rule, on a parameter and its states.
FN void rule(C* t, C g, const C* shared, const double* v) {
  C x = t[0];
  g = g * (C)(MAXIMIZE ? -1 : 1);
#ifdef ADAM
  if (!DECOUPLED && v[3] != 0.0) g = x * (C)v[3] + g;
  C old = x * shared[2];
  C mean = (g - t[1]) * (C)(1.0 - v[0]) + t[1];
  C square = t[2] * (C)v[1] + g * g * (C)(1.0 - v[1]);
  C most = square;
#if STATES > 2
  most = t[3];
  most = most < square || square != square ? square : most;
  t[3] = most;
#endif
  t[0] = old - shared[0] * mean / (u_sqrt(most) * shared[1] + (C)v[2]);
  t[1] = mean; t[2] = square;
#else
  if (v[2] != 0.0) g = x * (C)v[2] + g;
  C by = g;
#if STATES > 0
  C before = t[1] * shared[1] + g * shared[2];
  t[1] = before;
  by = NESTEROV ? before * (C)v[0] + g : before;
#endif
  t[0] = x - by * shared[0];
#endif
}

// 16 bytes in one instruction, which the compiler does not make of elements.
FN void whole(u64 to, const u32* x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" :: "l"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
}

// Some elements of each operand, V at once.
template <int V> FN void some(const Step& s, u64 from, u64 to, const C* shared, const double* v) {
  struct __align__(sizeof(E) * V) Vector { E e[V]; };
  for (u64 i = from + threadIdx.x * V; i < to; i += 256 * V) {
    Vector x[2 + STATES];
#pragma unroll
    for (int k = 0; k < 2 + STATES; k++) x[k] = *(const Vector*)((const E*)s.x[k] + i);
#pragma unroll
    for (int e = 0; e < V; e++) {
      C t[1 + STATES];
#pragma unroll
      for (int k = 0; k <= STATES; k++) t[k] = load(x[k].e[e]);
      rule(t, load(x[1 + STATES].e[e]), shared, v);
#pragma unroll
      for (int k = 0; k <= STATES; k++) store(x[k].e[e], t[k]);
    }
#pragma unroll
    for (int k = 0; k <= STATES; k++) {
      E* to = (E*)s.out[k] + i;
      if (V > 1) whole((u64)to, (const u32*)&x[k]); else *(Vector*)to = x[k];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) k(const CONSTANT Update p) {
  __shared__ C shared[3];
  if (*(const volatile u32*)p.stop) return;
  u32 low = 0, high = (u32)p.steps - 1;
  while (low < high) {
    u32 middle = (low + high) / 2;
    if (blockIdx.x < p.of[middle].end) high = middle; else low = middle + 1;
  }
  const Step& s = p.of[low];
  if (threadIdx.x == 0) {
    double rate = (double)load(*(const R*)p.rate);
#ifdef ADAM
    // v: beta1, beta2, eps, decay
    i64 count = *(const i64*)s.count;
    double step = (double)(count > 2147483647LL ? 2147483647LL : count < -2147483648LL ? -2147483648LL : count);
    double unbias1 = 1.0 - pow(p.v[0], step), unbias2 = 1.0 - pow(p.v[1], step);
    shared[0] = (C)(rate / unbias1);
    shared[1] = (C)(1.0 / sqrt(unbias2));
    shared[2] = (C)(DECOUPLED ? 1.0 - rate * p.v[3] : 1.0);
#else
    // v: momentum, dampening, decay
    bool first = STATES && *(const i64*)s.count <= 1;
    shared[0] = (C)rate;
    shared[1] = (C)(first ? 0.0 : p.v[0]);
    shared[2] = (C)(first ? 1.0 : 1.0 - p.v[1]);
#endif
  }
  __syncthreads();
  const C numbers[3] = {shared[0], shared[1], shared[2]};
  const u64 from = (blockIdx.x - (low ? p.of[low - 1].end : 0)) * CHUNK;
  const u64 to = from + CHUNK < s.n ? from + CHUNK : s.n;
  const int vector = 16 / sizeof(E);
  u64 all = 0;
#pragma unroll
  for (int k = 0; k < 2 + STATES; k++) all |= s.x[k];
#pragma unroll
  for (int k = 0; k <= STATES; k++) all |= s.out[k];
  // By 16 bytes where everything is aligned, up to the elements of the last vector.
  const u64 whole = all % 16 == 0 ? from + (to - from) / vector * vector : from;
  some<vector>(s, from, whole, numbers, p.v);
  some<1>(s, whole, to, numbers, p.v);
}
