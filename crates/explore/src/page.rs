//! The page with answers inside it: as one file with the bundle and all that it needs, or as the
//! server sends it, with what the first view shows, so that it asks for nothing before it is drawn.

use crate::answer::recording::PAGE;
use crate::answer::start::{EXAMPLES, cost_default, memory_default, values_of};
use crate::answer::{presets, start};
use crate::assets::{HTML, SCRIPT, STYLE};
use crate::error::{Answer, ExplorerError, ExplorerErrorKind};
use crate::explorer::{Explorer, Subject};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Positions of a slider that are computed.
const POSITIONS: u32 = 20;
/// Nodes of a recording whose pages are written; beyond, the server is needed.
const NODES: usize = 20_000;
/// Nodes of a recording whose graph is sent with the page; larger ones are asked for.
const WITH_THE_PAGE: usize = 5_000;

/// What has been computed for a page.
struct PageAnswers<'a> {
    explorer: &'a Explorer,
    answers: Vec<Value>,
}

impl PageAnswers<'_> {
    /// The answers as an element of the page.
    fn data(&self) -> String {
        let data = json!({ "schema": crate::SCHEMA, "answers": self.answers }).to_string();
        // It may contain `</script` in a text: in JSON, `<` can be escaped.
        let data = data.replace('<', "\\u003c");
        format!(r#"<script type="application/json" id="pullback-data">{data}</script>"#)
    }

    fn get(&mut self, path: &str, query: &str) -> Answer<Value> {
        let answer = self.explorer.respond("GET", path, query, &Value::Null)?;
        let full = if query.is_empty() { path.to_string() } else { format!("{path}?{query}") };
        self.answers.push(json!({ "method": "GET", "path": full, "answer": answer }));
        Ok(answer)
    }

    fn post(&mut self, path: &str, body: Value) -> Answer<Value> {
        let answer = self.explorer.respond("POST", path, "", &body)?;
        let entry = json!({ "method": "POST", "path": path, "body": body, "answer": answer });
        self.answers.push(entry);
        Ok(answer)
    }

    /// An expression with each of its ops and its program, and perhaps the positions of sliders.
    fn expression(&mut self, text: &str, values: &Map<String, Value>, sliders: bool) -> Answer {
        let body = json!({ "expression": text, "values": values });
        let tape = self.post("/api/expression", body.clone())?;
        for node in tape["nodes"].as_array().into_iter().flatten() {
            if node["kind"] == "op" && node["tracked"] == true {
                let mut body = body.clone();
                body["node"] = node["id"].clone();
                self.post("/api/op", body)?;
            }
        }
        self.post("/api/program", body.clone())?;
        let variables = tape["variables"].as_array().cloned().unwrap_or_default();
        for variable in variables.iter().filter(|v| sliders && v["scalar"] == true) {
            let (low, high) = (variable["low"].as_f64(), variable["high"].as_f64());
            let (Some(low), Some(high), Some(name)) = (low, high, variable["name"].as_str()) else {
                continue;
            };
            for k in 0..=POSITIONS {
                let at = low + f64::from(k) * (high - low) / f64::from(POSITIONS);
                let mut body = body.clone();
                body["values"][name] = json!(at);
                // Outside of a domain there may be no value: the page then says what the server
                // would.
                let _ = self.post("/api/expression", body);
            }
        }
        Ok(())
    }

    fn recording(&mut self, nodes: usize, visits: usize, program: bool) -> Answer {
        self.get("/api/recording", "")?;
        self.get("/api/recording/memory", "")?;
        for from in (0..nodes.min(NODES)).step_by(PAGE) {
            self.get("/api/recording/tape", &format!("from={from}&count={PAGE}"))?;
        }
        for from in (0..visits.min(NODES)).step_by(PAGE) {
            self.get("/api/recording/sweep", &format!("from={from}&count={PAGE}"))?;
        }
        for id in 0..nodes.min(NODES / 10) {
            self.get("/api/recording/node", &format!("id={id}"))?;
        }
        match program {
            true => self.get("/api/recording/program", "").map(drop),
            false => Ok(()),
        }
    }
}

/// The page as one file that needs no server.
///
/// # Errors
/// If what was opened cannot be computed.
pub fn written(explorer: &Explorer) -> Answer<String> {
    let start = start::answer(explorer, true);
    let first = json!({ "method": "GET", "path": "/api/start", "answer": start });
    let mut all = PageAnswers { explorer, answers: vec![first] };
    match &explorer.subject {
        Subject::Expression { text, values } => all.expression(text, values, true)?,
        Subject::Recording(opened) => {
            all.recording(opened.nodes(), opened.sweep_length(), opened.has_program())?;
        }
        Subject::Run(_) => all.get("/api/run", "").map(drop)?,
    }
    for example in &EXAMPLES {
        let known = matches!(&explorer.subject, Subject::Expression { text, .. } if text == example.expression);
        if !known {
            all.expression(example.expression, &values_of(example), false)?;
        }
    }
    all.post("/api/cost", cost_default())?;
    all.post("/api/memory", memory_default())?;
    for id in presets::names() {
        all.post("/api/preset", json!({ "id": id }))?;
    }
    assembled(&all.data())
}

/// The page as the server sends it. What cannot be computed beforehand is left to be asked for: the
/// page then shows why.
pub fn served(explorer: &Explorer) -> String {
    let mut all = PageAnswers { explorer, answers: Vec::new() };
    let _ = all.get("/api/start", "");
    match &explorer.subject {
        Subject::Expression { text, values } => {
            let _ = all.post("/api/expression", json!({ "expression": text, "values": values }));
        }
        Subject::Recording(opened) if opened.nodes() <= WITH_THE_PAGE => {
            let _ = all.get("/api/recording", "");
        }
        // The files of a run are read when they are asked for.
        Subject::Recording(_) | Subject::Run(_) => {}
    }
    HTML.replacen("<!-- data -->", &all.data(), 1)
}

/// The files of the bundle and the data, as one.
fn assembled(data: &str) -> Answer<String> {
    let broken =
        || ExplorerError::new(ExplorerErrorKind::Internal, "the bundle of the page is incomplete");
    // A script may contain `</script` in a text.
    let script = SCRIPT.replace("</script", "<\\/script");
    let hash = |text: &str| format!("'sha256-{}'", base64(&Sha256::digest(text.as_bytes())));
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data:; font-src data:; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(STYLE)
    );
    let replace = |text: String, old: &str, new: &str| match text.split_once(old) {
        Some((before, after)) => Ok(format!("{before}{new}{after}")),
        None => Err(broken()),
    };
    let page = replace(
        HTML.to_string(),
        "<head>",
        &format!("<head>\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">"),
    )?;
    let page = replace(
        page,
        r#"<link rel="stylesheet" href="/app.css">"#,
        &format!("<style>{STYLE}</style>"),
    )?;
    let page = replace(page, r#"<script defer src="/app.js"></script>"#, "")?;
    let page = replace(page, "<!-- data -->", "")?;
    replace(page, "</body>", &format!("{data}\n<script>{script}</script>\n</body>"))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let n = three.iter().fold(0u32, |n, &b| n << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for k in 0..4 {
            let digit = DIGITS[(n >> (18 - 6 * k)) as usize & 63];
            out.push(if k <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_of_the_standard() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, coded) in cases {
            assert_eq!(super::base64(plain.as_bytes()), coded);
        }
    }
}
