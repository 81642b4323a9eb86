//! Passes keep devices: a program on another device is rewritten as on the CPU, and two devices are
//! kept separate.

use super::generate::Choices;
use super::interpret::evaluate;
use proptest::prelude::*;
use pullback_ir::pass::*;
use pullback_ir::*;
use std::sync::Arc;

const GPU: Device = Device::Cuda(0);

/// The program with everything on a device.
fn moved(program: &Program, device: Device) -> Program {
    let mut out = program.clone();
    out.specs.iter_mut().for_each(|spec| spec.device = device);
    for e in &mut out.equations {
        let region = |region: &Arc<Region>| {
            let mut region = Region { device, ..Region::clone(region) };
            region.inputs.iter_mut().for_each(|load| load.spec.device = device);
            Arc::new(region)
        };
        match &mut e.op {
            Op::Literal { device: here, .. } | Op::Iota { device: here, .. } => *here = device,
            Op::Region(r) | Op::DotRegion(r) => *r = region(r),
            Op::Flow(flow) => {
                *flow = Arc::new(flow.map_programs(&mut |inside| moved(inside, device)));
            }
            _ => {}
        }
    }
    out
}

type Named = (&'static str, Box<dyn Fn(&Program) -> Program>);

fn passes() -> Vec<Named> {
    let standard = |p: &Program| {
        let passes = Pipeline::standard(Target::default(), evaluate).verified(true);
        passes.run(p).unwrap()
    };
    vec![
        ("dead_code", Box::new(dead_code)),
        ("fold", Box::new(|p| fold(p, &evaluate))),
        ("simplify", Box::new(simplify)),
        ("common_subexpressions", Box::new(common_subexpressions)),
        ("layout", Box::new(layout)),
        ("channels_last", Box::new(|p| channels_last(p, &[DType::F32]))),
        ("remat", Box::new(remat)),
        ("fuse", Box::new(fuse)),
        ("epilogue", Box::new(epilogue)),
        ("stores", Box::new(stores)),
        ("schedule", Box::new(schedule)),
        ("standard", Box::new(standard)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_program_elsewhere_is_rewritten_as_on_the_cpu(
        seed in prop::collection::vec(any::<u64>(), 30..80)
    ) {
        let mut choices = Choices(seed, 0);
        let size = 4 + choices.below(28);
        let program = choices.program(size, false);
        let there = moved(&program, GPU);
        there.verify_deeply().unwrap();
        prop_assert_eq!(there.device(), Some(GPU));
        let read = there.to_string().parse::<Program>().map(|p| p.renumbered());
        prop_assert_eq!(read.as_ref(), Ok(&there.renumbered()));
        for (name, pass) in passes() {
            let (here, elsewhere) = (pass(&program), pass(&there));
            prop_assert_eq!(&moved(&here, GPU), &elsewhere, "{}\n{}", name, there);
        }
    }
}

fn program(text: &str) -> Program {
    let program: Program = text.parse().unwrap();
    program.verify_deeply().unwrap();
    program
}

#[test]
fn equal_numbers_on_two_devices_stay_two() {
    let p = program(
        "program (a: f32[4], b: f32[4]@cuda:0) {
           let c: f32[4] = literal{2.0: f32[4]}
           let d: f32[4]@cuda:0 = literal{2.0: f32[4]@cuda:0}
           let e: f32[4] = mul a c
           let f: f32[4]@cuda:0 = mul b d
           return e, f
         }",
    );
    assert_eq!(p.device(), None);
    assert_eq!(common_subexpressions(&p).equations.len(), 4);
    let compiled = Pipeline::standard(Target::default(), evaluate).verified(true).run(&p).unwrap();
    let devices: Vec<Device> = compiled.outputs.iter().map(|&v| compiled.spec(v).device).collect();
    assert_eq!(devices, [Device::Cpu, GPU]);
}

#[test]
fn scalars_on_two_devices_are_no_region() {
    let p = program(
        "program (a: f32[], b: f32[]@cuda:0) {
           let c: f32[] = exp a
           let d: f32[] = mul c a
           let e: f32[]@cuda:0 = exp b
           let f: f32[]@cuda:0 = mul e b
           return d, f
         }",
    );
    let fused = fuse(&p);
    fused.verify_deeply().unwrap();
    assert_eq!(fused.equations.len(), 2, "{fused}");
}

#[test]
fn a_number_that_moves_is_a_number_there() {
    let p = program(
        "program (a: f32[2]@cuda:0) {
           let b: f32[2] = literal{3.0: f32[2]}
           let c: f32[2]@cuda:0 = to{cuda:0} b
           let d: f32[2]@cuda:0 = mul a c
           return d
         }",
    );
    let compiled = Pipeline::standard(Target::default(), evaluate).verified(true).run(&p).unwrap();
    assert_eq!(compiled.device(), Some(GPU), "{compiled}");
}

#[test]
fn what_moves_joins_no_region() {
    let p = program(
        "program (a: f32[8]) {
           let b: f32[8] = exp a
           let c: f32[8] = neg b
           let d: f32[8]@cuda:0 = to{cuda:0} c
           let e: f32[8]@cuda:0 = exp d
           let f: f32[8]@cuda:0 = neg e
           return f
         }",
    );
    let compiled = Pipeline::standard(Target::default(), evaluate).verified(true).run(&p).unwrap();
    let ops: Vec<&str> = compiled.equations.iter().map(|e| e.op.name()).collect();
    assert_eq!(ops, ["region", "to", "region"]);
}

#[test]
fn a_target_decides_what_is_joined() {
    let text = "program (a: f32[8,16], b: f32[16,4], c: f32[8,4]) {
       let d: f32[8,4] = dot a b
       let e: f32[8,4] = add d c
       return e
     }";
    let run = |target: Target| {
        let compiled = Pipeline::standard(target, evaluate).run(&program(text)).unwrap();
        compiled.equations.len()
    };
    let plain = Target::default();
    assert_eq!(run(plain), 1);
    assert_eq!(run(Target { epilogue: Epilogue::Nothing, ..plain }), 2);
    // What does not add products to memory needs the product somewhere.
    let text = "program (a: f32[8,16], b: f32[16,4], c: f32[8,4]) {
       let d: f32[8,4] = dot a b
       let e: f32[8,4] = add d c
       return e into c
     }";
    let p = Pipeline::standard(plain, evaluate).run(&program(text)).unwrap();
    let products = |target: Target| plan::plan(&p, target).products[0];
    assert_eq!(products(plain), Some(plan::ProductLocation::Added(2)));
    assert_ne!(
        products(Target { adds_products: &[], ..plain }),
        Some(plan::ProductLocation::Added(2))
    );
}

#[test]
fn a_target_aligns_its_arena() {
    let p = program(
        "program (a: f32[3]) {
           let b: f32[3], c: i64[3] = sort{axis=0,descending=false} a
           let d: f32[3] = gather{0} b c
           return d
         }",
    );
    for align in [64, 256, 512] {
        let plan = plan::plan(&p, Target { align, ..Target::default() });
        assert!(plan.arena > 0 && plan.arena.is_multiple_of(align), "{align}: {}", plan.arena);
        assert!(
            plan.locations
                .iter()
                .all(|home| home.base != plan::Base::Arena || home.start.is_multiple_of(align))
        );
    }
}
