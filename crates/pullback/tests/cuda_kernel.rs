//! Custom ops in CUDA C. Without a GPU of NVIDIA only what runs on the CPU is tested.

use pullback::{
    CudaKernel, CudaLaunch, CustomBatching, CustomOp, DType, Derivative, Device, Error, HostInput,
    HostOutput, Result, Spec, Tensor, catch, custom_op, grad, hessian, jit, jvp, vmap,
};

/// The GPU, if there is one.
fn gpu() -> Option<Device> {
    let found = Some(Device::Cuda(0)).filter(|device| device.is_available());
    if found.is_none() {
        println!("no GPU: not run");
    }
    found
}

/// A kernel of one result that computes `body`, of `x` or of `x` and `dy`, for each element.
fn elementwise(name: &str, operands: usize, body: &str) -> CudaKernel {
    let more = if operands == 2 { "const T1* dys, " } else { "" };
    let dy = if operands == 2 { "T1 dy = dys[i];" } else { "" };
    let text = format!(
        "extern \"C\" __global__ void {name}(const T0* xs, {more}R0* ys, long long n) {{\n\
           long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n\
           if (i >= n) return;\n\
           T0 x = xs[i]; {dy}\n\
           ys[i] = {body};\n\
         }}"
    );
    // SAFETY: a thread reads and writes element i alone, and only if there is one.
    unsafe { CudaKernel::elementwise(name, text, operands, 1) }
}

/// x³. Its gradient is another kernel, and the gradient of that is tensor code.
struct Cube {
    kernel: CudaKernel,
    slope: f64,
    batching: CustomBatching,
}

struct CubeSlope(CudaKernel, f64);

fn cube(slope: f64, batching: CustomBatching) -> Cube {
    Cube { kernel: elementwise("cube", 1, "x * x * x"), slope, batching }
}

impl CustomOp for Cube {
    fn name(&self) -> &'static str {
        "cube"
    }
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(vec![inputs[0].clone()])
    }
    fn cuda(&self) -> Option<&CudaKernel> {
        Some(&self.kernel)
    }
    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        let (x, y) = (inputs[0].as_slice::<f64>()?, outputs[0].as_mut_slice::<f64>()?);
        x.iter().zip(y).for_each(|(x, y)| *y = x * x * x);
        Ok(())
    }
    fn derivative(&self) -> Derivative {
        Derivative::Vjp
    }
    fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
        let kernel = elementwise("cube_slope", 2, &format!("T0({}) * x * x * dy", self.slope));
        vec![custom_op(CubeSlope(kernel, self.slope)).one(&[&x[0], &dy[0]])]
    }
    fn batching(&self) -> CustomBatching {
        self.batching
    }
}

impl CustomOp for CubeSlope {
    fn name(&self) -> &'static str {
        "cube_slope"
    }
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        Ok(vec![inputs[0].clone()])
    }
    fn cuda(&self) -> Option<&CudaKernel> {
        Some(&self.0)
    }
    fn forward(&self, inputs: &[HostInput], outputs: &mut [HostOutput]) -> Result<()> {
        let (x, dy) = (inputs[0].as_slice::<f64>()?, inputs[1].as_slice::<f64>()?);
        let y = outputs[0].as_mut_slice::<f64>()?;
        y.iter_mut().zip(x.iter().zip(dy)).for_each(|(y, (x, dy))| *y = self.1 * x * x * dy);
        Ok(())
    }
    fn derivative(&self) -> Derivative {
        Derivative::Vjp
    }
    fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
        vec![&x[0] * &x[1] * &dy[0] * (2.0 * self.1), x[0].square() * &dy[0] * self.1]
    }
}

/// The device under test, and the CPU, where the op's code is `forward`.
fn devices() -> Vec<Device> {
    [Some(Device::Cpu), gpu()].into_iter().flatten().collect()
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_f64_vec()
}

#[test]
fn a_kernel_is_an_op_like_any_other() {
    for device in devices() {
        for batching in [CustomBatching::OneByOne, CustomBatching::LeadingAxes] {
            let cube = custom_op(cube(3.0, batching));
            let f = |x: &Tensor| cube.one(&[x]);
            let loss = |x: &Tensor| f(x).sum();
            let x = Tensor::from([[1.0, 2.0, -3.0], [4.0, 0.5, -0.25]]).to(device);
            let wanted = values(&x).into_iter().map(|x| x * x * x).collect::<Vec<_>>();
            let slopes = values(&x).into_iter().map(|x| 3.0 * x * x).collect::<Vec<_>>();
            assert_eq!((f(&x).device(), values(&f(&x))), (device, wanted.clone()));
            // Operands are made dense.
            assert_eq!(values(&f(&x.t())), values(&f(&x).t()));
            assert_eq!(values(&grad(loss)(&x)), slopes);
            assert_eq!(values(&jvp(f, &x, &x.ones_like()).1), slopes);
            let second = hessian(loss)(&Tensor::from([2.0, -1.0]).to(device));
            assert_eq!(values(&second), [12.0, 0.0, 0.0, -6.0]);
            assert_eq!(values(&jit(f).of(&x)), wanted);
            assert_eq!(values(&jit(grad(loss)).of(&x)), slopes);
            assert_eq!(values(&vmap(f, 0, 0)(&x)), wanted);
            assert_eq!(values(&vmap(grad(loss), 1, 1)(&x)), slopes);
            assert_eq!(values(&jit(vmap(grad(loss), 0, 0)).of(&x)), slopes);
            assert!(f(&Tensor::zeros([0]).cast(DType::F64).to(device)).is_empty());
        }
    }
}

#[test]
fn a_wrong_derivative_is_refused() {
    for device in devices() {
        let wrong = custom_op(cube(2.0, CustomBatching::OneByOne));
        let x = Tensor::from([1.0, 2.0]).to(device);
        let error = catch(|| wrong.one(&[&x])).unwrap_err().to_string();
        assert!(error.starts_with("cube: its rule is not its derivative"), "{device}: {error}");
    }
}

#[test]
fn one_text_serves_every_float() {
    let Some(device) = gpu() else { return };
    let cube = custom_op(cube(3.0, CustomBatching::LeadingAxes));
    for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
        let x = Tensor::from([1.0, 2.0, -3.0]).cast(dtype).to(device);
        let y = cube.one(&[&x]);
        assert_eq!((y.dtype(), values(&y)), (dtype, vec![1.0, 8.0, -27.0]));
        assert_eq!(values(&grad(|x: &Tensor| cube.one(&[x]).sum())(&x)), [3.0, 12.0, 27.0]);
    }
}

/// Sums of rows: a block has a row, and adds in shared memory.
struct RowSums(CudaKernel);

fn row_sums() -> RowSums {
    let text = r#"
        extern "C" __global__ void row_sums(const T0* x, R0* y, long long width) {
          extern __shared__ double part[];
          double sum = 0;
          for (long long j = threadIdx.x; j < width; j += blockDim.x) sum += x[blockIdx.x * width + j];
          part[threadIdx.x] = sum;
          __syncthreads();
          if (threadIdx.x == 0) {
            for (int i = 1; i < blockDim.x; i++) part[0] += part[i];
            y[blockIdx.x] = part[0];
          }
        }"#;
    let launch = |x: &[Spec], y: &[Spec]| match (x, y) {
        ([x], [y]) if x.len() == y.len() * x.shape.last().unwrap_or(&0) => Ok(CudaLaunch {
            grid: [y.len() as u32, 1, 1],
            block: [64, 1, 1],
            shared_bytes: 64 * 8,
            numbers: vec![*x.shape.last().unwrap_or(&1) as i64],
        }),
        _ => Err(Error::shape("row_sums", "takes one tensor with an axis")),
    };
    // SAFETY: a block reads the elements of its row and writes its sum; there are as many blocks as
    // rows, and as many elements of shared memory as threads.
    RowSums(unsafe { CudaKernel::new("row_sums", text, launch) })
}

impl CustomOp for RowSums {
    fn name(&self) -> &'static str {
        "row_sums"
    }
    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let rows = inputs[0].shape.split_last().map_or(&[][..], |(_, rows)| rows);
        Ok(vec![inputs[0].with_shape(rows)])
    }
    fn cuda(&self) -> Option<&CudaKernel> {
        Some(&self.0)
    }
    fn derivative(&self) -> Derivative {
        Derivative::Vjp
    }
    fn vjp(&self, x: &[Tensor], _y: &[Tensor], dy: &[Tensor]) -> Vec<Tensor> {
        vec![dy[0].unsqueeze(-1).expand(x[0].shape())]
    }
}

#[test]
fn a_launch_of_ones_own_has_blocks_shared_memory_and_numbers() {
    let Some(device) = gpu() else { return };
    let sums = custom_op(row_sums());
    let x = Tensor::arange(0, 1200).reshape([4, 300]).cast(DType::F64).to(device);
    assert_eq!(values(&sums.one(&[&x])), values(&x.sum_over(-1)));
    let f = |x: &Tensor| sums.one(&[x]).square().sum();
    let wanted = grad(|x: &Tensor| x.sum_over(-1).square().sum())(&x);
    assert_eq!(values(&grad(f)(&x)), values(&wanted));
    assert_eq!(values(&vmap(grad(f), 0, 0)(&x)), values(&wanted));
}

#[test]
fn what_is_wrong_with_a_kernel_is_said_with_the_line() {
    let Some(device) = gpu() else { return };
    let broken = |kernel| {
        let op = Cube { kernel, ..cube(3.0, CustomBatching::OneByOne) };
        let op = custom_op(op).unchecked("it does not run");
        catch(|| op.one(&[&Tensor::from([1.0]).to(device)])).unwrap_err().to_string()
    };
    let error = broken(elementwise("cube", 1, "x * y * z"));
    assert!(error.starts_with("cube: its CUDA C, `cube`, is not a kernel"), "{error}");
    assert!(error.contains("cube.cu(5): error: identifier \"y\" is undefined"), "{error}");
    assert!(error.contains("tests/cuda_kernel.rs"), "{error}");
    // SAFETY: it does nothing.
    let other = unsafe { CudaKernel::elementwise("cube", "__global__ void cube() {}", 1, 1) };
    let error = broken(other);
    assert!(error.contains("there is no `extern \"C\" __global__ void cube(…)` in it"), "{error}");
    let error = broken(elementwise("cube", 2, "x"));
    assert!(error.contains("its kernel takes 2 operands and 1 results, given 1 and 1"), "{error}");
}
