// Tensor cores and asynchronous copies to shared memory, as instructions of PTX (from sm_80 on).
//
// A fragment is the part of a small matrix that a thread of a warp holds. With g = lane / 4 and
// t = lane % 4, in elements of 4 (2) bytes: of a left factor of 16×8 (16×16) the words (g, t),
// (g + 8, t), (g, t + 4), (g + 8, t + 4); of a right one of 8×8 (16×8) the words (t, g) and
// (t + 4, g); of a result of 16×8 the elements (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
// A word of 2-byte elements is two that are adjacent along the inner axis.

FN u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// 16 or 8 bytes, or zeros if they are not real.
FN void copy16(u32 to, const void* from, bool real) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(to), "l"(from), "r"(real ? 16 : 0) : "memory");
}
FN void copy8(u32 to, const void* from, bool real) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
               :: "r"(to), "l"(from), "r"(real ? 8 : 0) : "memory");
}
FN void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Four matrices of 8 rows of 16 bytes, each at the address that a lane of its eighth gives.
FN void load4(u32* r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
// The same of transposed matrices of 2-byte elements.
FN void load4_transposed(u32* r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
FN u32 load_word(u32 at) {
  u32 r;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(at) : "memory");
  return r;
}
FN float2 load_two(u32 at) {
  float2 r;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(r.x), "=f"(r.y) : "r"(at) : "memory");
  return r;
}
// c += a·b in f32, by dtype of the elements.
#define MMA(T, kind) \
  FN void mma(T, float* c, const u32* a, const u32* b) { \
    asm("mma.sync.aligned." kind " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
MMA(F32, "m16n8k8.row.col.f32.tf32.tf32.f32")
MMA(BF16, "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA(F16, "m16n8k16.row.col.f32.f16.f16.f32")
// Two elements as a word; one of f32 is a word by itself.
FN u32 word(F32, float low, float) { return __float_as_uint(low); }
FN u32 word(BF16, float low, float high) {
  u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r;
}
FN u32 word(F16, float low, float high) {
  u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r;
}
// The nearest number of TF32: 11 bits of mantissa, in the upper bits of an f32.
FN u32 to_tf32(float x) { u32 r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x)); return r; }
FN void load_four(float* x, u32 at) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(at) : "memory");
}
FN void store_rounded(u32 at, const float* x) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};"
               :: "r"(at), "r"(to_tf32(x[0])), "r"(to_tf32(x[1])), "r"(to_tf32(x[2])),
                  "r"(to_tf32(x[3])) : "memory");
}
FN float power_of_two(float x) {
  float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r;
}
