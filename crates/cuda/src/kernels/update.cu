// Steps of optimisers in one pass, as on the CPU (crates/cpu/src/update.rs). `E` is the element,
// `C` its compute type, `R` the element of the learning rate. All operands are dense; a thread reads
// its element of each before it writes.

struct Update {
  u64 out[4];   // new parameter and states
  u64 x[5];     // parameter, states, gradient
  u64 step, rate;
  u64 n;
  u64 stop;     // set after a kernel has rejected a value: nothing is updated until that is reported
  double v[8];  // numbers of the rule
};

extern "C" __global__ void __launch_bounds__(256) k(Update p) {
  __shared__ C shared[6];
  if (*(const volatile u32*)p.stop) return;
  if (threadIdx.x == 0) {
    double rate = (double)load(*(const R*)p.rate);
#ifdef ADAM
    // v: beta1, beta2, eps, decay
    i64 count = *(const i64*)p.step;
    double step = (double)(count > 2147483647LL ? 2147483647LL : count < -2147483648LL ? -2147483648LL : count);
    double unbias1 = 1.0 - pow(p.v[0], step), unbias2 = 1.0 - pow(p.v[1], step);
    shared[0] = (C)(rate / unbias1);
    shared[1] = (C)(1.0 / sqrt(unbias2));
    shared[2] = (C)(DECOUPLED ? 1.0 - rate * p.v[3] : 1.0);
#else
    // v: momentum, dampening, decay
    bool first = MOMENTUM && *(const i64*)p.step <= 1;
    shared[0] = (C)rate;
    shared[1] = (C)(first ? 0.0 : p.v[0]);
    shared[2] = (C)(first ? 1.0 : 1.0 - p.v[1]);
#endif
  }
  __syncthreads();
  for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < p.n; i += (u64)gridDim.x * 256) {
    C x = load(((const E*)p.x[0])[i]);
    C g = load(((const E*)p.x[GRADIENT])[i]) * (C)(MAXIMIZE ? -1 : 1);
#ifdef ADAM
    if (!DECOUPLED && p.v[3] != 0.0) g = x * (C)p.v[3] + g;
    C mean = load(((const E*)p.x[1])[i]), square = load(((const E*)p.x[2])[i]);
    C old = x * shared[2];
    mean = (g - mean) * (C)(1.0 - p.v[0]) + mean;
    square = square * (C)p.v[1] + g * g * (C)(1.0 - p.v[1]);
    C most = square;
    if (LARGEST) {
      most = load(((const E*)p.x[3])[i]);
      most = most < square || square != square ? square : most;
      store(((E*)p.out[3])[i], most);
    }
    x = old - shared[0] * mean / (u_sqrt(most) * shared[1] + (C)p.v[2]);
    store(((E*)p.out[1])[i], mean); store(((E*)p.out[2])[i], square);
#else
    if (p.v[2] != 0.0) g = x * (C)p.v[2] + g;
    C by = g;
    if (MOMENTUM) {
      C before = load(((const E*)p.x[1])[i]) * shared[1] + g * shared[2];
      store(((E*)p.out[1])[i], before);
      by = NESTEROV ? before * (C)p.v[0] + g : before;
    }
    x = x - by * shared[0];
#endif
    store(((E*)p.out[0])[i], x);
  }
}
