//! Every number of a tape is the engine's, and they fit together.

use super::{default_subject, get, post, serve};
use pullback::{Tensor, grad, jvp};
use pullback_explore::answer::start::EXAMPLES;
use pullback_explore::{Explorer, written};
use serde_json::{Value, json};

fn near(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-12 * a.abs().max(b.abs()).max(1.0)
}

/// The elements of a value, in order.
fn elements(value: &Value) -> Vec<f64> {
    fn walk(data: &Value, out: &mut Vec<f64>) {
        match data {
            Value::Array(items) => items.iter().for_each(|item| walk(item, out)),
            Value::Number(x) => out.push(x.as_f64().expect("a float")),
            Value::String(text) => out.push(text.parse().expect("NaN or infinity")),
            other => panic!("{other} is no number"),
        }
    }
    let mut out = Vec::new();
    walk(&value["data"], &mut out);
    out
}

#[test]
fn the_default_is_what_the_engine_computes() {
    let address = serve(default_subject());
    let start = get(address, "/api/start").json();
    let body =
        json!({ "expression": start["opened"]["expression"], "values": start["opened"]["values"] });
    let tape = post(address, "/api/expression", &body).json();
    let names: Vec<&str> =
        tape["nodes"].as_array().unwrap().iter().map(|n| n["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["x", "y", "a", "b", "L"]);
    let f = |x: &(Tensor, Tensor)| {
        let a = &x.0 * &x.1;
        &a + a.sin()
    };
    let at = (Tensor::from(2.0), Tensor::from(3.0));
    let (dx, dy) = grad(f)(&at);
    let gradient = tape["sweep"]["gradient"].as_array().unwrap();
    assert_eq!(gradient[0]["value"]["data"], dx.item::<f64>());
    assert_eq!(gradient[1]["value"]["data"], dy.item::<f64>());
    assert_eq!(tape["nodes"][4]["value"]["data"], f(&at).item::<f64>());
    // What is saved: both operands of the product, the operand of the sine.
    let saved = |id: usize| -> Vec<u64> {
        let all = tape["nodes"][id]["saved"].as_array().unwrap();
        all.iter().map(|s| s["node"].as_u64().unwrap()).collect()
    };
    assert_eq!((saved(2), saved(3), saved(4)), (vec![0, 1], vec![2], vec![]));
    assert_eq!(tape["nodes"][2]["uses"], 2);
    // The tangent along x.
    let (_, dot) = jvp(f, &at, &(Tensor::from(1.0), Tensor::from(0.0)));
    assert_eq!(tape["forward"]["result"]["data"], dot.item::<f64>());
    // A direction of one's own.
    let mut body = body;
    body["direction"] = json!({ "y": 2 });
    let tape = post(address, "/api/expression", &body).json();
    assert!(near(elements(&tape["forward"]["result"])[0], 2.0 * dy.item::<f64>()));
}

/// In each example: registers start at zero, each contribution is added, the last sum is the
/// adjoint; where the local derivative is known, it times the adjoint is the contribution.
#[test]
fn the_numbers_of_every_example_can_be_checked_by_hand() {
    let address = serve(default_subject());
    for example in &EXAMPLES {
        let values: Value = serde_json::from_str(example.values).unwrap();
        let body = json!({ "expression": example.expression, "values": values });
        let tape = post(address, "/api/expression", &body).json();
        assert_eq!(tape["defaulted"], json!([]), "{}", example.id);
        let count = tape["nodes"].as_array().unwrap().len();
        let mut registers: Vec<Option<Vec<f64>>> = vec![None; count];
        let seed = &tape["sweep"]["seed"];
        registers[seed["node"].as_u64().unwrap() as usize] = Some(elements(&seed["cotangent"]));
        let mut multiplied = 0;
        for visit in tape["sweep"]["visits"].as_array().unwrap() {
            let node = visit["node"].as_u64().unwrap() as usize;
            let adjoint = elements(&visit["adjoint"]);
            let sum = registers[node].clone().expect("what is visited has a gradient");
            assert!(sum.iter().zip(&adjoint).all(|(a, b)| near(*a, *b)), "{}", example.id);
            for part in visit["contributions"].as_array().unwrap() {
                let to = part["to"].as_u64().unwrap() as usize;
                let product = elements(&part["product"]);
                let before = registers[to].clone().unwrap_or_else(|| vec![0.0; product.len()]);
                assert_eq!(elements(&part["before"]), before, "{}", example.id);
                let after = elements(&part["after"]);
                let added = before.iter().zip(&product).map(|(a, b)| a + b);
                assert!(added.zip(&after).all(|(a, b)| a == *b), "{}", example.id);
                registers[to] = Some(after);
                let local = &part["local"];
                let expected: Vec<f64> = match local["kind"].as_str().unwrap() {
                    "whole" => {
                        let jacobian = elements(&local["value"]);
                        let columns = product.len();
                        let column = |c: usize| {
                            let rows = adjoint.iter().enumerate();
                            rows.map(|(r, dy)| dy * jacobian[r * columns + c]).sum()
                        };
                        (0..columns).map(column).collect()
                    }
                    "diagonal" => {
                        let slopes = elements(&local["value"]);
                        slopes.iter().zip(&adjoint).map(|(s, dy)| s * dy).collect()
                    }
                    _ => continue,
                };
                assert!(
                    expected.iter().zip(&product).all(|(a, b)| near(*a, *b)),
                    "{}: {expected:?} is not {product:?}",
                    example.id
                );
                multiplied += 1;
            }
        }
        assert!(multiplied > 0, "{}", example.id);
        for leaf in tape["sweep"]["gradient"].as_array().unwrap() {
            let id = leaf["node"].as_u64().unwrap() as usize;
            let gradient = elements(&leaf["value"]);
            let sum = registers[id].clone().unwrap_or_else(|| vec![0.0; gradient.len()]);
            assert!(sum.iter().zip(&gradient).all(|(a, b)| near(*a, *b)), "{}", example.id);
        }
        // Both modes agree, in the tape and in each op.
        let check = &tape["forward"]["check"];
        let (forward, reverse) = (check["forward"].as_f64(), check["reverse"].as_f64());
        assert!(near(forward.unwrap(), reverse.unwrap()), "{}", example.id);
        for node in tape["nodes"].as_array().unwrap().iter().filter(|n| n["kind"] == "op") {
            let mut body = body.clone();
            body["node"] = node["id"].clone();
            let op = post(address, "/api/op", &body);
            assert_eq!(op.status, 200, "{}: {}", example.id, op.json());
            let op = op.json();
            let inner = &op["inner"];
            let (a, b) = (&inner["jvp_with_cotangent"], &inner["tangent_with_vjp"]);
            assert!(near(a.as_f64().unwrap(), b.as_f64().unwrap()), "{}: {inner}", example.id);
        }
    }
}

#[test]
fn what_json_has_no_number_for_survives() {
    let address = serve(default_subject());
    let body = json!({ "expression": "log(x) + y", "values": { "x": -1, "y": "inf" } });
    let tape = post(address, "/api/expression", &body).json();
    assert_eq!(tape["nodes"][2]["value"]["data"], "NaN");
    let body = json!({ "expression": "1/x", "values": { "x": 0 } });
    let tape = post(address, "/api/expression", &body).json();
    assert_eq!(tape["sweep"]["gradient"][0]["value"]["data"], "-inf");
    // A variable without a value gets one, and is named.
    let tape = post(address, "/api/expression", &json!({ "expression": "u*v" })).json();
    assert_eq!(tape["defaulted"], json!(["u", "v"]));
}

#[test]
fn programs_show_what_each_pass_changed() {
    let address = serve(default_subject());
    let body = json!({ "expression": "sum(tanh(W @ x) * exp(x))",
        "values": { "W": [[1, 2], [3, 4]], "x": [0.5, -1] } });
    let shown = post(address, "/api/program", &body).json();
    let stages = shown["stages"].as_array().unwrap();
    assert_eq!(stages[0]["name"], "trace");
    for pair in stages.windows(2) {
        assert_eq!(pair[0]["after"], pair[1]["before"]);
        let (before, after) =
            (pair[1]["before"].as_i64().unwrap(), pair[1]["after"].as_i64().unwrap());
        let (added, removed) =
            (pair[1]["added"].as_i64().unwrap(), pair[1]["removed"].as_i64().unwrap());
        assert_eq!(after - before, added - removed, "{}", pair[1]["name"]);
    }
    assert!(stages.iter().any(|s| s["name"] == "fuse" && s["added"].as_u64() > Some(0)));
    let regions = shown["regions"].as_array().unwrap();
    assert!(regions.iter().any(|r| r["code"].as_str().unwrap().contains("tanh")), "{regions:?}");
    let bytes = shown["arena"]["bytes"].as_u64().unwrap();
    for interval in shown["arena"]["intervals"].as_array().unwrap() {
        let end = interval["offset"].as_u64().unwrap() + interval["bytes"].as_u64().unwrap();
        assert!(end <= bytes && interval["first"].as_u64() <= interval["last"].as_u64());
    }
}

#[test]
fn memory_has_its_valley_and_marks_what_runs_again() {
    let address = serve(default_subject());
    let body = json!({ "layers": 16, "width": 32, "batch": 16, "segment": 4, "budget": 12000 });
    let shown = post(address, "/api/memory", &body).json();
    let runs = shown["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["plain", "checkpointed", "budget"], "{shown}");
    let number = |run: &Value, field: &str| run[field].as_u64().unwrap();
    assert_eq!(number(&runs[0], "recomputed"), 0);
    for run in &runs[1..] {
        assert!(number(run, "kept") < number(&runs[0], "kept"), "{}", run["name"]);
        assert!(run["budget"].is_null() || number(run, "kept") <= number(run, "budget"), "{run}");
        assert!(number(run, "recomputed") > 0, "{}", run["name"]);
        let marked = run["timeline"].as_array().unwrap().iter().filter(|m| m["recomputed"] == true);
        assert_eq!(marked.count() as u64, number(run, "recomputed"));
    }
    let segments = shown["segments"].as_array().unwrap();
    let best = segments.iter().min_by_key(|s| s["peak"].as_u64()).unwrap()["segment"].as_u64();
    assert!((2..=8).contains(&best.unwrap()), "{segments:?}");
}

#[test]
fn costs_and_presets() {
    let address = serve(default_subject());
    let shown = post(address, "/api/cost", &json!({ "points": [[8, 2]] })).json();
    let point = &shown["points"][0];
    assert_eq!((&point["forward"]["passes"], &point["reverse"]["passes"]), (&json!(8), &json!(2)));
    assert!(point["function"].as_f64() > Some(0.0) && point["ratio"].as_f64() > Some(0.0));
    let ratio = point["counted_ratio"].as_f64().unwrap();
    assert!((1.0..5.0).contains(&ratio), "{ratio}");
    let start = get(address, "/api/start").json();
    for preset in start["presets"].as_array().unwrap() {
        assert!(preset.get("answer").is_none());
        let revealed = post(address, "/api/preset", &json!({ "id": preset["id"] }));
        assert_eq!(revealed.status, 200, "{}: {}", preset["id"], revealed.json());
        let revealed = revealed.json();
        let choices = preset["choices"].as_array().unwrap().len() as u64;
        assert!(revealed["answer"].as_u64().unwrap() < choices);
        assert!(!revealed["numbers"].as_array().unwrap().is_empty());
    }
    let answer =
        |id: &str| post(address, "/api/preset", &json!({ "id": id })).json()["answer"].clone();
    assert_eq!((answer("reuse"), answer("kink"), answer("wide")), (json!(1), json!(3), json!(1)));
}

#[test]
fn a_written_page_needs_nothing_else() {
    let explorer = Explorer::new(default_subject());
    let page = written(&explorer).expect("a page");
    assert!(!page.contains("src=\"/") && !page.contains("href=\"/"));
    let data =
        page.split("id=\"pullback-data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(data).expect("the data is JSON");
    let answers = data["answers"].as_array().unwrap();
    let find = |path: &str| answers.iter().filter(|a| a["path"] == path).collect::<Vec<_>>();
    assert_eq!(find("/api/start")[0]["answer"]["written"], true);
    // Two variables at 21 positions, the expression itself, and seven other examples.
    assert_eq!(find("/api/expression").len(), 2 * 21 + 1 + 7);
    assert_eq!(find("/api/preset").len(), 7);
    let policy = page.split("Content-Security-Policy\" content=\"").nth(1).unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
    assert!(page.matches("<script").count() >= 2);
}
