//! The other side of the sweep: a process of PyTorch that times what it is sent.

use super::Operand;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process, and the pipes to it.
pub struct Peer {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts the script with an interpreter that has PyTorch.
    pub fn start(python: &str, threads: usize) -> io::Result<Peer> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/torch_sweep.py");
        let mut child = Command::new(python)
            .args([script, &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("its pipes are missing");
        let from = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut peer = Peer { to: child.stdin.take(), child, from };
        let version = peer.line().map_err(io::Error::other)?;
        eprintln!("beside PyTorch {version}, threads: {threads}");
        Ok(peer)
    }

    /// Sends an expression and its operands.
    pub fn send(&mut self, expression: &str, operands: &[Operand]) -> Result<(), String> {
        let mut bytes = format!("{expression}\n{}\n", operands.len()).into_bytes();
        for operand in operands {
            let (head, elements) = operand.message();
            bytes.extend(format!("{head}\n").into_bytes());
            bytes.extend(elements);
        }
        self.write(&bytes)?;
        match self.line()? {
            ready if ready == "ready" => Ok(()),
            error => Err(format!("PyTorch: {error}")),
        }
    }

    /// The time of a call, with gradients or without; infinite if there is none.
    pub fn time(&mut self, gradient: bool) -> Result<f64, String> {
        self.write(if gradient { b"gradient\n" } else { b"forward\n" })?;
        let answer = self.line()?;
        answer.parse().map_err(|_| format!("PyTorch: {answer}"))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let to = self.to.as_mut().ok_or("the peer has ended")?;
        to.write_all(bytes).and_then(|()| to.flush()).map_err(|error| error.to_string())
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => Err("the peer has ended".into()),
            Ok(_) => Ok(line.trim().to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.to = None;
        let _ = self.child.wait();
    }
}
