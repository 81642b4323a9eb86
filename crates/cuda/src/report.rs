//! What the steps of a planned program are compiled to, for reports. No device is needed: the text
//! of a kernel follows from the plan, and NVRTC, where it is found, says what a thread of it takes.

use crate::compile::usage;
use crate::loops::{Loop, StridedOperand};
use crate::lowering::{Lowering, held_copies};
use crate::profile::CallDescription;
use crate::program::{CodeStep, StepAction, with_loop};
use crate::text::{LoopForm, LoopText, own_text, text};
use pullback_ir::pass::plan::{Plan, Planned};
use pullback_ir::{Inst, KernelCode, KernelUsage, Op, Program, Result, Value, element_count};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The kernels of a program that is planned for a GPU, with the code generated for its regions on
/// a chip (90 for compute capability 9.0). No device is needed, and without NVRTC only
/// [`KernelCode::usage`] is missing.
///
/// ```
/// use pullback_cuda::TARGET;
/// use pullback_ir::{Device, Program, pass::fuse, pass::plan::Planned};
/// let text = "program (x: f32[4096]) {
///   let a: f32[4096] = square x
///   let b: f32[4096] = exp a
///   return b
/// }";
/// let program = fuse(&text.parse::<Program>().unwrap()).on_device(Device::Cuda(0));
/// let kernels = pullback_cuda::kernels_of(&Planned::new(&program, TARGET)?, 90)?;
/// assert_eq!((kernels.len(), kernels[0].bytes), (1, 2 * 4096 * 4));
/// assert!(kernels[0].text.as_ref().unwrap().contains("u_exp("));
/// # Ok::<(), pullback_ir::Error>(())
/// ```
///
/// # Errors
/// If a region of the program is invalid.
pub fn kernels_of(planned: &Planned, chip: u32) -> Result<Vec<KernelCode>> {
    let mut report = KernelReport { chip, ..KernelReport::default() };
    report.program(planned.program(), planned.plan(), None)?;
    Ok(report.kernels)
}

/// The text of a kernel, and what a thread of it takes.
type KernelText = (Arc<str>, Option<KernelUsage>);

#[derive(Default)]
struct KernelReport {
    chip: u32,
    kernels: Vec<KernelCode>,
    /// By their texts.
    texts: FxHashMap<LoopText, KernelText>,
}

impl KernelReport {
    /// Looks at the steps of a program, which is inside an equation of the whole one, or is it.
    fn program(&mut self, program: &Program, plan: &Plan, inside: Option<usize>) -> Result<()> {
        let (held, _) = held_copies(program, plan);
        let (compiler, mut steps) =
            (Lowering { gpu: None, program, plan, copies: held }, Vec::new());
        for (e, equation) in program.equations.iter().enumerate() {
            if matches!(equation.op, Op::Literal { .. }) {
                continue;
            }
            compiler.equation(e, &mut steps)?;
            if let Op::Flow(flow) = &equation.op {
                for (program, plan) in flow.programs().into_iter().zip(&plan.inner[e]) {
                    self.steps(&std::mem::take(&mut steps), inside);
                    self.program(program, plan, inside.or(Some(e)))?;
                }
            }
        }
        compiler.moves(&mut steps);
        self.steps(&steps, inside);
        Ok(())
    }

    fn steps(&mut self, steps: &[CodeStep], inside: Option<usize>) {
        for step in steps {
            let equation = inside.unwrap_or(step.equation);
            let [x, out] = step.somewhere();
            let made = match &step.action {
                StepAction::Region(region, values) => {
                    let key = with_loop(region, values, &x, &out, first_kernel);
                    key.map(|key| self.kernel_text(key, values))
                }
                StepAction::Op(_) | StepAction::AddProduct | StepAction::WideProduct => None,
                StepAction::Flow(_) | StepAction::Start(..) | StepAction::Wait(_) => None,
                StepAction::CopyStart(..) | StepAction::CopyEnd(..) => None,
            };
            let (text, usage) = made.map_or((None, None), |(text, usage)| (Some(text), usage));
            let what =
                CallDescription { kernel: step.name(), inputs: &x, outputs: &out, at: step.at };
            let call = what.call();
            let same = |known: &&mut KernelCode| {
                known.kernel == call.kernel
                    && known.operands == call.operands
                    && known.text == text
                    && known.bytes == call.bytes
                    && known.at == call.at
            };
            match self.kernels.iter_mut().find(same) {
                Some(known) => known.equations.push(equation),
                None => self.kernels.push(KernelCode {
                    kernel: call.kernel,
                    operands: call.operands,
                    equations: vec![equation],
                    bytes: call.bytes,
                    operations: call.operations,
                    text,
                    usage,
                    milliseconds: None,
                    at: call.at,
                }),
            }
        }
    }

    fn kernel_text(&mut self, key: LoopText, values: &[Value]) -> KernelText {
        let chip = self.chip;
        let made = self.texts.entry(key).or_insert_with_key(|key| {
            (own_text(key, values).into(), usage(&text(key, values), chip))
        });
        made.clone()
    }
}

/// The kernel that a region launches first: the parts of split rows, and the shares of sums over
/// the rows, are added by another. `None`: there is nothing to compute.
pub(crate) fn first_kernel(of: &Loop<'_>, columns: &[(usize, StridedOperand)]) -> Option<LoopText> {
    let count = element_count(of.shape);
    if count == 0 {
        return None;
    }
    let rows = of.in_rows();
    if let Some(held) = of.held_with_columns(&rows, columns) {
        return Some(of.held_call(held, rows.rows, rows.width).1);
    }
    // What is summed is stored first.
    let mut outputs = of.outputs.to_vec();
    let stored = |(v, _): &(usize, StridedOperand)| {
        (*v, StridedOperand::dense(1 << 40, of.values[*v].dtype, of.shape))
    };
    outputs.extend(columns.iter().map(stored));
    let of = Loop { outputs: &outputs, ..*of };
    if !of.body.iter().any(|inst| matches!(inst, Inst::Reduce(..))) {
        return Some(of.elements_call(count).0);
    }
    let rows = of.in_rows();
    if let Some(held) = of.fits_registers(&rows, &[]) {
        return Some(of.held_call(held, rows.rows, rows.width).1);
    }
    let (form, _, wide): (LoopForm, _, _) = of.row_form(&rows);
    Some(of.text(form, wide))
}
