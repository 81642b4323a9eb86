// Special functions, in double precision: the methods of the CPU (crates/cpu/src/special). Those
// that a row names `special` are `s_…` here.

#define POLY(x, c) poly(x, c, sizeof(c) / sizeof(double))
__device__ __noinline__ double poly(double x, const double* c, int n) {
  double y = c[n - 1];
  for (int k = n - 2; k >= 0; k--) y = fma(y, x, c[k]);
  return y;
}
__device__ const double NEAR_ONE[30] = {
  -0.5772156649015329, 0.8224670334241132, -0.4006856343865307, 0.27058080842778387,
  -0.2073855510288846, 0.16955717699761294, -0.1440498967441441, 0.1255096695007263,
  -0.11133426738296036, 0.10009945898417442, -0.09095396147817056, 0.08335378642428555,
  -0.07693384797749431, 0.07143424085913012, -0.0666469660070385, 0.06247981994150854,
  -0.059073275414740396, 0.055798122160668526, -0.05059570584998663, 0.048020858519722875,
  -0.059467630506988924, 0.056971969494995923, 0.004945338328244218, -0.005399712296235696,
  -0.17396451715070047, 0.1686556126817108, 0.19472176853583203, -0.18947756655876552,
  -0.24025245552681862, 0.2331921266866054
};
__device__ const double NEAR_TWO[19] = {
  0.42278433509846713, 0.32246703342411326, -0.0673523010531981, 0.02058080842778038,
  -0.0073855510286719986, 0.002890510331034267, -0.0011927539118428156, 0.0005096695154115458,
  -0.00022315475400520507, 9.945767355819498e-05, -4.49263133791557e-05, 2.0505590755833454e-05,
  -9.438715099211532e-06, 4.38470440459836e-06, -2.0439048107029907e-06, 9.200527894968101e-07,
  -4.3252393445604814e-07, 2.78740805211359e-07, -1.3219945666117874e-07
};
__device__ const double STIRLING[9] = {
  0.08333333333333333, -0.0027777777777777744, 0.0007936507936450394, -0.0005952380914267929,
  0.000841749570829054, -0.001917287055870562, 0.006383322059276921, -0.027742741357277903,
  0.11001554697563673
};
__device__ const double DIGAMMA[25] = {
  0.9510558760318328, -0.42362742128146047, 0.24054248424078692, -0.1484049230539187,
  0.09498872445291558, -0.061922133271544284, 0.04076083393821673, -0.026975796849706184,
  0.01790724844392596, -0.011908215027359153, 0.007927018411136843, -0.005280020192518892,
  0.0035181618550874957, -0.0023446252179885993, 0.001562789950608375, -0.0010424323828753985,
  0.000694908174082211, -0.0004591975036646912, 0.0003061242075543146, -0.00022001895005109955,
  0.0001466781049062341, -5.7709404612698156e-05, 3.847275205849602e-05, -8.394009422598467e-05,
  5.596002350342592e-05
};
__device__ const double TAIL[9] = {
  0.08333333333333333, -0.008333333333333273, 0.003968253968150779, -0.0041666665982644955,
  0.007575734736252119, -0.021088476563015532, 0.08284662584146768, -0.4103919397123186,
  1.7723438848038762
};
__device__ const double BERNOULLI[12] = {
  0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07,
  2.08767569878681e-08, -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13,
  8.586062056277845e-15, -2.174868698558062e-16, 5.5090028283602295e-18, -1.3954464685812522e-19
};
__device__ const double C0[14] = {
  -0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073,
  0.0003527336860670194, -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06,
  -1.85406221071516e-06, 8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09,
  1.0261809784240309e-08, -4.382036018453353e-09
};
__device__ const double C1[14] = {
  -0.001851851851851852, -0.003472222222222222, 0.0026455026455026454, -0.0009902263374485596,
  0.00020576131687242798, -4.018775720164609e-07, -1.8098550334489977e-05, 7.64916091608111e-06,
  -1.6120900894563446e-06, 4.647127802807434e-09, 1.378633446915721e-07, -5.752545603517705e-08,
  1.1951628599778148e-08, -1.7543241719747647e-11
};
__device__ const double C2[14] = {
  0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06,
  -0.0001073665322636516, 5.2923448829120125e-05, -1.2760635188618728e-05, 3.423578734096138e-08,
  1.3721957309062934e-06, -6.298992138380055e-07, 1.4280614206064242e-07, -2.0477098421990866e-10,
  -1.409252991086752e-08, 6.228974084922022e-09
};
__device__ const double C3[14] = {
  0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557, 0.00026772063206283885,
  -7.561801671883977e-05, -2.396505113867297e-07, 1.1082654115347302e-05, -5.6749528269915965e-06,
  1.4230900732435883e-06, -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08,
  -1.9111168485973655e-08, 2.3928620439808118e-12
};
__device__ const double I0_NEAR[18] = {
  1.0, 1.0, 0.25, 0.02777777777777778, 0.001736111111111106, 6.94444444444488e-05,
  1.9290123456765543e-06, 3.9367598892378866e-08, 6.151187324009745e-10, 7.594058486836424e-12,
  7.594057493384469e-14, 6.276092616120491e-16, 4.358286919760222e-18, 2.5796346353114483e-20,
  1.3122104575180078e-22, 5.976589569234451e-25, 1.9739699188457068e-27, 1.2294574273495177e-29
};
__device__ const double I1_NEAR[17] = {
  1.0, 0.5, 0.08333333333333334, 0.006944444444444433, 0.0003472222222222366,
  1.1574074074063174e-05, 2.755731922452985e-07, 4.920949859540306e-09, 6.834652632309533e-11,
  7.594057567711265e-13, 6.903701192957936e-15, 5.22994881944532e-17, 3.3535043207335216e-19,
  1.837156865691237e-21, 8.963806609001204e-24, 3.1590697545594773e-26, 2.0903513298308396e-28
};
__device__ const double I0_FAR[24] = {
  0.4021765094450081, 0.0033605519836678913, 0.00013621607438951463, 1.114303378845176e-05,
  1.4838476780922646e-06, 2.9735992084667734e-07, 8.872014585661555e-08, 3.932512321137824e-08,
  2.156780676115673e-08, 7.559364098665437e-09, -6.856484545962442e-09, -1.3427511481900905e-08,
  -5.0175940345046716e-09, 7.600254486433509e-09, 6.522264862032271e-09, -3.5862834111582305e-09,
  -4.5305710768621196e-09, 1.6084886155781772e-09, 2.163681278413876e-09, -6.327909921997027e-10,
  -6.494591114401118e-10, 1.7698085539456536e-10, 9.114760157514253e-11, -2.4421972688131832e-11
};
__device__ const double I1_FAR[24] = {
  0.38939845902587233, -0.009749577193235765, -0.00021923576383137776, -1.5038547198221758e-05,
  -1.8349102493990178e-06, -3.4838563464253135e-07, -1.0001075046243961e-07,
  -4.3128498031006734e-08, -2.3394122958362557e-08, -8.432168972932417e-09, 6.84757829926934e-09,
  1.4051746928735543e-08, 5.5720183980930355e-09, -7.687251308765992e-09, -6.9444186339873875e-09,
  3.501765193290176e-09, 4.763780078020254e-09, -1.5218214060680734e-09, -2.2624401109204446e-09,
  5.870664618471487e-10, 6.7727478454462e-10, -1.6283264322621244e-10, -9.491890392992048e-11,
  2.2421768596847442e-11
};

#define HALF_LN_2PI 0.9189385332046728
#define PI 3.14159265358979323846
#define SPECIAL __device__ __noinline__ double

SPECIAL stirling(double x) { double r = 1.0 / x; return r * POLY(r * r, STIRLING); }
SPECIAL s_lgamma(double x) {
  if (x != x) return x;
  if ((x <= 0.0 && x == floor(x)) || x == INF) return INF;
  double a = fabs(x), flipped = 0.0; bool negative = false;
  if (a < 0.5) return x * POLY(x, NEAR_ONE) - log(a);
  if (x < 0.0) {
    double r = x - round(x);
    flipped = log(PI / (a * fabs(sin(PI * r)))); negative = true; x = a;
  }
  double y;
  if (x < 1.5) y = (x - 1.0) * POLY(x - 1.0, NEAR_ONE) + 0.0;
  else if (x < 8.0) {
    double t = x, product = 1.0;
    while (t >= 2.5) { t -= 1.0; product *= t; }
    y = log(product) + (t - 2.0) * POLY(t - 2.0, NEAR_TWO);
  } else {
    double l = log(x);
    y = x > 1e300 ? x * (l - 1.0) : (x - 0.5) * (l - 1.0) + (HALF_LN_2PI - 0.5 + stirling(x));
  }
  return negative ? flipped - y : y;
}
SPECIAL lgamma_1p(double a) { return a < 0.5 ? a * POLY(a, NEAR_ONE) : s_lgamma(1.0 + a); }
SPECIAL s_digamma(double x) {
  if (x == 0.0) return copysign(INF, -x);
  double add = 0.0;
  if (x < 0.0) {
    if (x == floor(x)) return NOT_A_NUMBER;
    add = -PI / tan(PI * (x - round(x)));
    x = 1.0 - x;
  }
  if (x >= 8.0) {
    double r = 1.0 / x, tail = r * r * POLY(r * r, TAIL);
    return x < INF ? log(x) - (0.5 * r + tail) + add : x;
  }
  if (x < 1.0) { add -= 1.0 / x; x += 1.0; }
  double y = x, sum = 0.0;
  while (y > 2.0) { y -= 1.0; sum += 1.0 / y; }
  double off = ((y - 1.4616321449683622) - 9.549995429965697e-17) - 2.89392992820415e-33;
  return sum + off * POLY(y - 1.5, DIGAMMA) + add;
}
SPECIAL zeta_positive(double s, double q) {
  if (q == INF || s == INF) return pow(q, -s);
  double sum = 0.0;
  for (int k = 0; k < 12; k++) {
    double term = pow(q + k, -s);
    sum += term;
    if (term < 1e-17 * sum || term == 0.0) return sum;
  }
  double a = q + 12.0, b = pow(a, -s), rest = b * (a / (s - 1.0)) + 0.5 * b, factor = s * b / a;
  for (int k = 0; k < 12; k++) {
    double term = BERNOULLI[k] * factor;
    rest += term;
    if (fabs(term) < 1e-17 * fabs(rest)) break;
    double j = 2.0 * k + 1.0;
    factor *= (s + j) / a * ((s + j + 1.0) / a);
  }
  return sum + rest;
}
SPECIAL s_zeta(double s, double q) {
  if (s != s || q != q || s < 1.0) return NOT_A_NUMBER;
  if (s == 1.0 || (q <= 0.0 && q == floor(q))) return INF;
  if (q > 0.0) return zeta_positive(s, q);
  if (s != floor(s)) return NOT_A_NUMBER;
  double m = floor(-q) + 1.0, r = -q - (m - 1.0);
  double before = zeta_positive(s, r) - zeta_positive(s, r + m);
  return zeta_positive(s, 1.0 - r) + (fmod(s, 2.0) == 1.0 ? -before : before);
}
SPECIAL excess(double d) {
  if (fabs(d) > 0.4) return d - log1p(d);
  double r = d / (2.0 + d), z = r * r, sum = 0.0;
  for (int k = 13; k >= 1; k--) sum = (sum + 1.0 / (2 * k + 1)) * z;
  return r * (d - 2.0 * sum);
}
SPECIAL prefactor(double a, double x) {
  if (a >= 8.0) return exp(-a * excess((x - a) / a) - stirling(a)) / sqrt(2.0 * PI * a);
  if (x > 600.0) return exp(a * log(x) - x - lgamma_1p(a));
  double y = a, gamma = 1.0;
  while (y >= 1.0) { gamma *= y; y -= 1.0; }
  return pow(x, a) * exp(-x) / (gamma * exp(lgamma_1p(y)));
}
SPECIAL gamma_series(double a, double x) {
  double front = prefactor(a, x), term = 1.0, sum = 1.0, n = a;
  while (term > sum * 1e-17) { n += 1.0; term *= x / n; sum += term; }
  return fmin(front * sum, 1.0);
}
SPECIAL gamma_small(double a, double x) {
  double term = 1.0, sum = 0.0, n = 0.0;
  for (;;) {
    n += 1.0; term *= -x / n;
    double add = term / (a + n);
    sum += add;
    if (fabs(add) <= fabs(sum) * 1e-17) break;
  }
  double l = a * log(x) - lgamma_1p(a);
  return -expm1(l) - exp(l) * a * sum;
}
SPECIAL gamma_fraction(double a, double x) {
  const double tiny = 1e-300;
  double b = x + 1.0 - a, c = 1.0 / tiny, d = 1.0 / b, h = d;
  for (int i = 1; i < 20000; i++) {
    double n = -(double)i * (i - a);
    b += 2.0; d = n * d + b; d = 1.0 / (fabs(d) < tiny ? tiny : d);
    c = b + n / c; c = fabs(c) < tiny ? tiny : c;
    h *= d * c;
    if (fabs(d * c - 1.0) < 1e-16) break;
  }
  return prefactor(a, x) * a * h;
}
// P(a, x), or 1 − P(a, x).
SPECIAL incomplete(double a, double x, bool upper) {
  if (a != a || x != x || a < 0.0 || x < 0.0) return NOT_A_NUMBER;
  double p, q;
  if (a == 0.0) { p = x > 0.0 ? 1.0 : NOT_A_NUMBER; q = 1.0 - p; }
  else if (x == 0.0) { p = 0.0; q = 1.0; }
  else if (a == INF) { p = x == INF ? NOT_A_NUMBER : 0.0; q = 1.0 - p; }
  else if (x == INF) { p = 1.0; q = 0.0; }
  else {
    double d = (x - a) / a;
    if (a > 5000.0 && fabs(d) < 0.25) {
      double half = excess(d), eta = copysign(sqrt(2.0 * half), d);
      double c[4] = {POLY(eta, C0), POLY(eta, C1), POLY(eta, C2), POLY(eta, C3)};
      double rest = exp(-a * half) / sqrt(2.0 * PI * a) * poly(1.0 / a, c, 4);
      double z = copysign(sqrt(a * half), d);
      p = 0.5 * erfc(-z) - rest; q = 0.5 * erfc(z) + rest;
    } else if (x < 1.1 && a < 1.1 * fmax(x, 0.36 / -log(fmin(x, 0.5)))) {
      q = gamma_small(a, x); p = q < 0.9 ? 1.0 - q : gamma_series(a, x);
    } else if (x < a + 1.0) { p = gamma_series(a, x); q = 1.0 - p; }
    else { q = gamma_fraction(a, x); p = 1.0 - q; }
  }
  return upper ? q : p;
}
SPECIAL s_gammainc(double a, double x) { return incomplete(a, x, false); }
SPECIAL s_gammaincc(double a, double x) { return incomplete(a, x, true); }
SPECIAL grown(double p, double a) {
  if (a < 700.0) return p * exp(a);
  double half = exp(0.5 * a);
  return a < INF ? p * half * half : a;
}
SPECIAL s_i0(double x) { double a = fabs(x); return a <= 8.0 ? POLY(0.25 * a * a, I0_NEAR) : grown(POLY(16.0 / a - 1.0, I0_FAR) / sqrt(a), a); }
SPECIAL s_i0e(double x) { double a = fabs(x); return a <= 8.0 ? POLY(0.25 * a * a, I0_NEAR) * exp(-a) : POLY(16.0 / a - 1.0, I0_FAR) / sqrt(a); }
SPECIAL s_i1(double x) { double a = fabs(x); return a <= 8.0 ? 0.5 * x * POLY(0.25 * a * a, I1_NEAR) : copysign(grown(POLY(16.0 / a - 1.0, I1_FAR) / sqrt(a), a), x); }
SPECIAL s_i1e(double x) { double a = fabs(x); return a <= 8.0 ? 0.5 * x * POLY(0.25 * a * a, I1_NEAR) * exp(-a) : copysign(POLY(16.0 / a - 1.0, I1_FAR) / sqrt(a), x); }
