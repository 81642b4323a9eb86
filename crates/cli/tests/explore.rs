//! `pullback explore`: serves, writes a page, and says what is wrong with what it is given.

mod browser;
mod run;

use run::{command, run};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// Ends the server with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_prints_its_address_and_answers_there() {
    let words = ["explore", "a = x^2; a + 1", "x=3", "--no-open"];
    let mut server = Ended(command(&words).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut line = String::new();
    let stdout = server.0.stdout.take().expect("an output");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let address = line.split_whitespace().next().expect("an address");
    let host =
        address.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/')).expect("http");
    assert!(host.starts_with("127.0.0.1:"), "{line}");
    let mut stream = TcpStream::connect(host).expect("it listens");
    write!(stream, "GET /api/start HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("a = x^2; a + 1"), "{reply}");
    // The models of `pullback explain` are there.
    assert!(reply.contains(r#""models":["mlp","cnn","gpt","lstm"]"#));
}

#[test]
fn a_page_is_one_file() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("page.html");
    let ran = run(&["explore", "-x^2", "x=3", "--out", path.to_str().expect("a name")]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let page = std::fs::read_to_string(&path).expect("a page");
    assert!(page.contains("pullback-data") && page.contains("-x^2"));
}

#[test]
fn what_cannot_be_opened_gets_a_sentence() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("noise.pullback");
    std::fs::write(&file, b"noise").expect("written");
    let (folder, file) = (place.path().to_str().expect("a name"), file.to_str().expect("a name"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = &taken.local_addr().expect("an address").port().to_string()[..];
    #[rustfmt::skip]
    let cases: [(&[&str], i32, &str); 9] = [
        (&["explore", "x +", "x=1"],                 2, "expected a number"),
        (&["explore", "foo(x)", "x=1"],              2, "there is no function `foo`"),
        (&["explore", "x*y", "x=2", "z=3"],          2, "`z` is given, but it is no variable of `x*y`"),
        (&["explore", "x", "x=1", "--port", port],   1, "cannot listen on 127.0.0.1"),
        (&["explore", "missing.pullback"],           2, "there is no file or folder missing.pullback"),
        (&["explore", folder],                       2, "is not a run folder"),
        (&["explore", file],                         1, "this is not a recording"),
        (&["explore", file, "x=2"],                  2, "has no variables"),
        (&["explore", "x", "x=1", "--host", "here"], 2, "invalid value 'here'"),
    ];
    for (words, code, text) in cases {
        let ran = run(words);
        assert_eq!(ran.code, code, "{words:?}: {}", ran.err);
        assert!(ran.err.contains(text), "{words:?}: {}", ran.err);
    }
}
