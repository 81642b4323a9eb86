//! The text of machine code, written while it is emitted: so it is that of the code, and no decoder
//! is needed.

use super::Lane;
use iced_x86::{FastFormatter, Instruction};

/// Lines of text.
pub(super) struct Listing {
    formatter: FastFormatter,
    out: String,
    functions: usize,
}

impl Listing {
    pub(super) fn new() -> Listing {
        let mut formatter = FastFormatter::new();
        let options = formatter.options_mut();
        options.set_space_after_operand_separator(true);
        options.set_use_hex_prefix(true);
        options.set_uppercase_hex(false);
        Listing { formatter, out: String::new(), functions: 0 }
    }

    /// A line inside a function.
    pub(super) fn line(&mut self, text: &str) {
        self.out.extend(["    ", text, "\n"]);
    }

    /// A place that is jumped to.
    pub(super) fn label(&mut self, name: &str) {
        self.out.extend([name, ":\n"]);
    }

    /// A function begins here, of so many elements at a time.
    pub(super) fn entry(&mut self, lanes: usize) {
        let number = self.functions;
        self.functions += 1;
        self.label(&format!("f{number}"));
        self.line("; rdi: table of pointers");
        match lanes {
            1 => self.line("; one element, in the lowest lane"),
            lanes => {
                self.line("; rsi: elements left, rax: index");
                self.line(&format!("; {lanes} elements at a time"));
            }
        }
    }

    /// A constant at an address before the function that reads it.
    pub(super) fn number(&mut self, at: u64, bits: u64, lane: Lane) {
        let value = match lane {
            Lane::F64 => format!("f64 {:?}", f64::from_bits(bits)),
            Lane::I64 => format!("i64 {}", bits as i64),
            _ => format!("f32 {:?}", f32::from_bits(bits as u32)),
        };
        self.line(&format!("; {at:#x}: {value}"));
    }

    pub(super) fn instruction(&mut self, instruction: &Instruction) {
        self.out.push_str("    ");
        self.formatter.format(instruction, &mut self.out);
        self.out.push('\n');
    }

    pub(super) fn text(self) -> String {
        self.out
    }
}
