//! Devices as users meet them, on a machine that has only the CPU: what is refused, in which words,
//! and where the values of programs for another device are.

use pullback::{
    DType, Device, ErrorKind, Op, Spec, Tensor, catch, default_device, grad, jvp, next_key_on,
    random_state, random_states, set_random_state, trace, try_apply, vjp, vmap,
    with_default_device,
};
use std::fs;
use std::path::{Path, PathBuf};

/// A device that no machine has.
const GPU: Device = Device::Cuda(63);

#[test]
fn there_is_a_cpu() {
    assert_eq!(Device::available()[0], Device::Cpu);
    assert!(Device::Cpu.is_available() && !GPU.is_available());
    assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
    assert_eq!("cuda:63".parse::<Device>().unwrap(), GPU);
}

#[test]
fn a_device_that_is_not_there_is_refused_in_a_sentence() {
    let x = Tensor::from([1.0f32, 2.0]);
    let refused = "device cuda:63 is not available; available: cpu";
    let error = catch(|| x.to("cuda:63")).unwrap_err();
    let line = line!() - 1;
    assert_eq!(error.kind(), ErrorKind::Device);
    assert_eq!(error.location().unwrap().line(), line);
    assert!(error.to_string().starts_with(&format!("to: {refused}\n  on f32[2]")), "{error}");
    let error = catch(|| with_default_device(GPU, || Tensor::zeros([2]))).unwrap_err();
    assert!(error.to_string().starts_with(&format!("with_default_device: {refused}")), "{error}");
    let error = catch(|| next_key_on("cuda:63")).unwrap_err();
    assert!(error.to_string().starts_with(&format!("next_key: {refused}")), "{error}");
    for text in ["literal{1.0: f32[2]@cuda:63}", "iota{2: i64@cuda:63}"] {
        let op: Op = text.parse().unwrap();
        let error = try_apply(op, &[]).unwrap_err();
        assert!(error.to_string().contains(refused), "{error}");
    }
    let error = try_apply(Op::To(GPU), &[&x]).unwrap_err();
    assert!(error.to_string().contains(refused), "{error}");
    let error = catch(|| x.to("tpu")).unwrap_err();
    assert!(error.to_string().contains("`tpu` is not a device"), "{error}");
}

#[test]
fn a_tensor_that_is_there_is_itself() {
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    assert!(x.to("cpu").is_same(&x) && x.to(Device::Cpu).is_same(&x) && x.cpu().is_same(&x));
    assert!(x.to(String::from("cpu")).is_same(&x) && x.to(Device::Cpu).is_same(&x));
    assert_eq!(x.device(), Device::Cpu);
}

#[test]
fn the_default_device_is_that_of_the_scope() {
    assert_eq!(default_device(), Device::Cpu);
    let x = with_default_device("cpu", || {
        assert_eq!(default_device(), Device::Cpu);
        Tensor::zeros([2])
    });
    assert_eq!(x.device(), Device::Cpu);
}

/// The op that moves, though there is one device: on the same one it is a copy with a derivative.
#[test]
fn moving_is_linear() {
    let x = Tensor::from([1.0, 2.0, 3.0]);
    let moved = |x: &Tensor| try_apply(Op::To(Device::Cpu), &[x]).unwrap().remove(0);
    let f = |x: &Tensor| (moved(&x.square()) * x).sum();
    assert_eq!(grad(f)(&x).to_vec::<f64>(), [3.0, 12.0, 27.0]);
    let (_, along) = jvp(f, &x, &x.ones_like());
    assert_eq!(along.item::<f64>(), 42.0);
    let second = grad(|x: &Tensor| grad(f)(x).sum());
    assert_eq!(second(&x).to_vec::<f64>(), [6.0, 12.0, 18.0]);
    let rows = vmap(|x: &Tensor| moved(&x.exp()), 0, 0)(&x.reshape([3, 1]));
    assert_eq!(rows.to_vec::<f64>(), x.exp().to_vec::<f64>());
}

/// In a trace the gradient of what moves comes back.
#[test]
fn a_gradient_comes_back_to_the_old_device() {
    let f = |x: &[Tensor]| {
        let there = |x: &Tensor| try_apply(Op::To(GPU), &[x]).unwrap().remove(0).exp().sum();
        vjp(there, &x[0]).1(&there(&x[0]).ones_like())
    };
    let program = trace(f, &[Spec::cpu(DType::F32, [3])]).unwrap();
    let result = program.spec(program.outputs[0]);
    assert_eq!(*result, Spec::cpu(DType::F32, [3]));
    let text = program.to_string();
    assert!(text.contains("to{cuda:63}") && text.contains("to{cpu}"), "{text}");
}

#[test]
fn operands_on_two_devices_are_refused_with_the_line() {
    let line = line!() + 1;
    let f = |x: &[Tensor]| &x[0] + &x[1];
    let specs = [Spec::cpu(DType::F32, [2]), Spec::on(GPU, DType::F32, [2])];
    let error = trace(f, &specs).unwrap_err();
    assert_eq!((error.kind(), error.location().unwrap().line()), (ErrorKind::Device, line));
    let text = error.to_string();
    let wanted = "add: operands are on different devices: f32[2]@cpu, f32[2]@cuda:63\n";
    assert!(text.starts_with(wanted), "{text}");
    assert!(text.contains("hint: move one with `.to(\"cpu\")`"), "{text}");
    // A number is made on the device of its operand, a tensor of one number is not.
    let one = |x: &[Tensor]| &x[0] * &Tensor::from(2.0f32);
    assert_eq!(trace(one, &specs[1..]).unwrap_err().kind(), ErrorKind::Device);
    let number = trace(|x: &[Tensor]| 1.0 - &x[0] * 2.0, &specs[1..]).unwrap();
    assert_eq!(number.device(), Some(GPU));
}

#[test]
fn the_states_of_generators_go_back_together() {
    let states = random_states();
    assert_eq!(states.len(), 1);
    assert_eq!(states[0].spec(), random_state().spec());
    let key = next_key_on("cpu").tensor().to_vec::<i64>();
    states.iter().for_each(set_random_state);
    assert_eq!(next_key_on(Device::Cpu).tensor().to_vec::<i64>(), key);
}

/// Lines that make a tensor on the default device where an operand says where it belongs.
#[test]
fn the_library_makes_tensors_on_the_device_of_their_operands() {
    // What has no operand, or whose memory is the host's.
    let free = [
        ("pullback/src/create.rs", 20),
        ("pullback/src/create/new_like.rs", 9),
        ("pullback/src/control/mod.rs", 1),
        ("pullback/src/ops/collective.rs", 1),
        ("pullback/src/ops/fft/grid.rs", 2),
        ("pullback/src/ops/matrix.rs", 1),
        ("pullback/src/memory/compress/blocks.rs", 1),
        ("pullback/src/memory/compress/mod.rs", 1),
        ("pullback/src/random.rs", 1),
        ("pullback/src/random/generator.rs", 3),
    ];
    let names = ["zeros", "ones", "full", "eye", "arange", "arange_by", "linspace", "from"];
    let names = names.iter().chain(&["from_vec", "rand", "randn", "randperm"]);
    let made: Vec<String> =
        names.flat_map(|n| [format!("Tensor::{n}("), format!("Tensor::{n}_with(")]).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|p| p.ends_with("crates"));
    let root = root.expect("the crates");
    let mut found = Vec::new();
    for path in sources(&root.join("pullback/src")) {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let counts = |line: &&str| {
            let line = line.trim_start();
            let says = ["//", "#[doc", "note = "].iter().any(|head| line.starts_with(head));
            !says && made.iter().any(|name| line.contains(&name[..]))
        };
        let count = code.lines().filter(counts).count();
        let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let most = free.iter().find(|(file, _)| name == *file).map_or(0, |(_, most)| *most);
        if count > most {
            found.push(format!("{name}: {count} lines, {most} expected"));
        }
    }
    assert!(found.is_empty(), "use `x.new_zeros(..)` and its kin:\n{}", found.join("\n"));
}

/// The source files of a folder, tests left out.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            out.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "lib.rs" {
            out.push(path);
        }
    }
    out
}
