//! Recordings: what a program did, as a file, and opened again.

use super::{get, serve};
use pullback::record_file::{Recording, Sampled};
use pullback::{
    Backward, DType, Key, Recorder, Spec, Tensor, checkpoint, detect_anomaly, jit, memory_budget,
    record, record_program, trace,
};
use pullback_explore::Subject;
use pullback_explore::answer::recording::OpenedRecording;
use pullback_nn::models::{Gpt, GptConfig};
use pullback_nn::{Layer, Linear, Module, Sequential, Tanh};
use serde_json::Value;

/// What `f` did, with names of tensors.
pub fn captured<R>(names: &[(&str, &Tensor)], f: impl FnOnce() -> R) -> (R, Recording) {
    let recorder = names.iter().fold(Recorder::new(), |all, (name, x)| all.name(*name, x));
    recorder.capture(f).expect("nothing else is recording")
}

/// The gradient of a node, where all of it is there.
fn gradient(recording: &Recording, id: usize) -> Vec<f64> {
    match &recording.nodes[id].gradient {
        Some(Sampled::Whole(values)) => values.clone(),
        other => panic!("{other:?}"),
    }
}

fn ops(recording: &Recording) -> Vec<&str> {
    let name = |op: u32| &recording.names[op as usize].0[..];
    recording.nodes.iter().filter_map(|node| node.op).map(name).collect()
}

fn leaf(recording: &Recording, name: &str) -> usize {
    let label = recording.labels.iter().position(|label| label == name).expect("a leaf");
    recording.nodes.iter().position(|n| n.label == Some(label as u32)).expect("a node")
}

#[test]
fn a_run_is_recorded_as_it_was() {
    let x = Tensor::from(2.0).requires_grad();
    let y = Tensor::from(3.0).requires_grad();
    let (line, recording) = captured(&[("x", &x), ("y", &y)], || {
        let a = &x * &y;
        let line = line!() - 1;
        (&a + a.sin()).backward().expect("a gradient");
        line
    });
    assert_eq!(ops(&recording), ["mul", "sin", "add"]);
    let product = recording.nodes.iter().position(|n| n.op.is_some()).unwrap();
    let node = &recording.nodes[product];
    let at = &recording.lines[node.line.unwrap() as usize];
    assert!(at.contains("recordings.rs") && at.contains(&format!(":{line}:")), "{at}");
    assert_eq!(node.saved.len(), 2);
    assert!(matches!(&node.value, Sampled::Whole(v) if v[..] == [6.0]));
    assert_eq!(node.operands, [leaf(&recording, "x") as u32, leaf(&recording, "y") as u32]);
    let grad = |x: &Tensor| vec![x.grad().unwrap().item::<f64>()];
    assert_eq!(gradient(&recording, leaf(&recording, "x")), grad(&x));
    assert_eq!(gradient(&recording, leaf(&recording, "y")), grad(&y));
    // Backward visits the three ops in reverse, and each contribution is there.
    let visited: Vec<u32> = recording.visits.iter().map(|visit| visit.node).collect();
    assert_eq!(visited.len(), 3);
    assert!(visited.windows(2).all(|pair| pair[0] > pair[1]));
    assert_eq!(recording.visits.iter().map(|v| v.contributions.len()).sum::<usize>(), 5);
    assert_eq!(recording.result, Some(visited[0]));
    assert!(recording.moments.iter().any(|m| m.backward));
    assert_eq!(Recording::from_bytes(&recording.to_bytes()), Ok(recording));
}

/// What is recorded changes nothing: the same gradients, bit for bit, and nothing is left on.
#[test]
fn recording_changes_nothing() {
    let w = Tensor::from_vec((0..64).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<_>>(), [8, 8]);
    let w = w.requires_grad();
    let x = Tensor::full([4, 8], 0.5f32);
    let step = || {
        let h = x.matmul(&w).tanh();
        let h = checkpoint(|h: &Tensor| h.exp().sin(), &h);
        memory_budget(200, || (h.matmul(&w).softmax(-1) * &h).sum()).backward()
    };
    step().expect("a gradient");
    let plain = w.grad().unwrap().to_vec::<f32>();
    w.zero_grad();
    let (_, recording) = captured(&[], || step().expect("a gradient"));
    assert_eq!(w.grad().unwrap().to_vec::<f32>(), plain);
    assert!(recording.moments.iter().any(|m| m.again), "the checkpoint ran again");
    w.zero_grad();
    step().expect("a gradient");
    assert_eq!(w.grad().unwrap().to_vec::<f32>(), plain);
    // Inside anomaly mode, and where the program fails: the error comes out.
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("failed.pullback");
    let outcome = record(&path, || detect_anomaly(|| x.exp().matmul(&x.sum()).backward()));
    assert!(outcome.expect_err("shapes do not fit").to_string().contains("matmul"));
    assert!(OpenedRecording::file(&path).expect("what ran is there").nodes() >= 2);
    let nested = record(&path, || record(place.path().join("other"), || Ok(())));
    assert!(nested.expect_err("one is enough").to_string().contains("recording already"));
    assert!(record(place.path().join("no/such/folder"), || Ok(())).is_err());
}

/// The file that was there stays until another recording is complete, and nothing is left beside
/// it.
#[test]
fn a_file_is_replaced_at_the_end() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("step.pullback");
    let x = Tensor::from(2.0);
    record(&path, || Ok(x.exp())).expect("recorded");
    let before = std::fs::read(&path).expect("a file");
    let same = || std::fs::read(&path).expect("a file") == before;
    let nested = record(place.path().join("outer"), || {
        let refused = record(&path, || Ok(x.sin()));
        assert!(refused.is_err() && same());
        Ok(())
    });
    nested.expect("the outer one is recorded");
    let foreign = || {
        let _ = record(&path, || -> pullback::Result<()> {
            assert!(same(), "it is not touched while the program runs");
            std::panic::resume_unwind(Box::new("not an error of the library"))
        });
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(foreign)).is_err());
    assert!(same());
    assert!(record(place.path(), || Ok(x.sin())).is_err(), "a folder is no file");
    record(&path, || Ok(x.sin().cos())).expect("recorded");
    assert!(!same());
    let mut left: Vec<String> = std::fs::read_dir(place.path())
        .expect("a folder")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().to_string())
        .collect();
    left.sort();
    assert_eq!(left, ["outer", "step.pullback"]);
}

/// Each visit has the gradient of its own pass.
#[test]
fn several_passes_keep_their_gradients() {
    let x = Tensor::from(2.0).requires_grad();
    let (_, recording) = captured(&[("x", &x)], || {
        let h = &x * 3.0;
        Backward::of(&(&h * 2.0)).retain_graph().run().expect("a gradient");
        (&h * 5.0).backward().expect("a gradient");
    });
    let product = recording.nodes.iter().position(|n| n.op.is_some()).expect("a product");
    let visits = recording.visits.iter().filter(|v| v.node as usize == product);
    let adjoints: Vec<_> = visits.map(|v| v.adjoint.clone()).collect();
    assert_eq!(adjoints, [Sampled::Whole(vec![2.0]), Sampled::Whole(vec![5.0])]);
    let bytes = recording.to_bytes();
    assert_eq!(Recording::from_bytes(&bytes), Ok(recording));
    let opened = OpenedRecording::bytes("x".into(), &bytes).expect("a recording");
    let sweep = opened.answer("/api/recording/sweep", "").expect("a sweep");
    let visits = sweep["visits"].as_array().expect("visits");
    let of = visits.iter().filter(|v| v["node"] == product);
    let shown: Vec<f64> = of.filter_map(|v| v["adjoint"]["data"].as_f64()).collect();
    assert_eq!(shown, [2.0, 5.0]);
    let node = opened.answer("/api/recording/node", &format!("id={product}")).expect("a node");
    let visit = node["visit"].as_u64().expect("it was visited") as usize;
    assert_eq!(node["adjoint"], visits[visit]["adjoint"]);
}

/// Tensors that share memory and not gradients are different nodes.
#[test]
fn the_same_memory_is_not_the_same_value() {
    let x = Tensor::from([1.0, 2.0]).requires_grad();
    let (_, recording) = captured(&[("x", &x)], || {
        let h = &x * 3.0;
        let cut = h.detach().requires_grad();
        ((&h * 2.0).sum() + (&cut * 7.0).sum()).backward().expect("a gradient");
    });
    let product = recording.nodes.iter().position(|n| n.op.is_some()).expect("a product");
    assert_eq!(gradient(&recording, product), [2.0, 2.0]);
    let leaves = recording.nodes.iter().enumerate();
    let leaves = leaves.filter(|(_, n)| n.kind == pullback::record_file::NodeKind::Parameter);
    let gradients: Vec<Vec<f64>> = leaves.map(|(id, _)| gradient(&recording, id)).collect();
    assert_eq!(gradients, [[6.0, 6.0], [7.0, 7.0]]);

    let w = Tensor::from_vec(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).requires_grad();
    let (_, recording) = captured(&[("w", &w)], || {
        let again = w.t().t();
        ((&again * 2.0).sum() + (&w * 5.0).sum()).backward().expect("a gradient");
    });
    let kinds = ops(&recording);
    let turned = kinds.iter().filter(|op| kinds[0] == **op).count();
    assert_eq!(turned, 2, "{kinds:?}");
    // The leaf, its transpose and the transpose of that, each with its own gradient.
    assert_eq!(gradient(&recording, leaf(&recording, "w")), [7.0; 6]);
    let views: Vec<usize> = (0..recording.nodes.len())
        .filter(|&id| recording.nodes[id].op == recording.nodes[1].op)
        .collect();
    assert_eq!(views.len(), 2, "{kinds:?}");
    for view in views {
        assert_eq!(gradient(&recording, view), [2.0; 6]);
    }
}

/// The values of a checkpointed function are recorded once; their gradients arrive at them.
#[test]
fn gradients_of_checkpointed_values_are_found() {
    let x = Tensor::from([0.5, 1.0]).requires_grad();
    let run = |again: bool| {
        let f = |x: &Tensor| x.sin().exp().cos();
        let (_, recording) = captured(&[("x", &x)], || {
            let y = if again { checkpoint(f, &x) } else { f(&x) };
            y.sum().backward().expect("a gradient");
        });
        x.zero_grad();
        recording
    };
    let (plain, again) = (run(false), run(true));
    let of = |recording: &Recording, op: &str| {
        let named = |n: &&pullback::record_file::RecordedNode| {
            n.op.is_some_and(|k| recording.names[k as usize].0 == op)
        };
        let node = recording.nodes.iter().find(named).expect("recorded");
        node.gradient.clone()
    };
    for op in ["sin", "exp", "cos"] {
        assert!(of(&plain, op).is_some());
        assert_eq!(of(&plain, op), of(&again, op), "{op}");
    }
    assert_eq!(ops(&again).iter().filter(|op| **op == "sin").count(), 1);
    assert!(again.moments.iter().any(|m| m.again) && !plain.moments.iter().any(|m| m.again));
}

#[test]
fn modules_are_parts_and_every_view_is_served() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("step.pullback");
    let model = Sequential::new().then(Linear::new(4, 64)).then(Tanh).then(Linear::new(64, 2));
    let x = Tensor::full([3, 4], 0.5f32);
    pullback_nn::record(&path, &model, || model.forward(&x).square().mean().backward())
        .expect("recorded");
    let opened = OpenedRecording::file(&path).expect("a recording");
    let address = serve(Subject::Recording(Box::new(opened)));
    assert_eq!(get(address, "/api/start").json()["opened"]["kind"], "recording");
    let graph = get(address, "/api/recording").json();
    let parts: Vec<&str> =
        graph["parts"].as_array().unwrap().iter().map(|p| p["path"].as_str().unwrap()).collect();
    assert!(["0", "1", "2"].iter().all(|part| parts.contains(part)), "{parts:?}");
    let total = graph["total"].as_u64().unwrap();
    for (name, column) in graph["nodes"].as_object().unwrap() {
        assert_eq!(column.as_array().unwrap().len() as u64, total, "{name}");
    }
    let names = graph["nodes"]["name"].as_array().unwrap();
    let weight = names.iter().position(|name| name == "0.weight").expect("a parameter");
    assert!(graph["nodes"]["gradient"][weight].as_f64() > Some(0.0));
    // The tanh belongs to the second part, has 192 values and so statistics of them.
    let tanh = graph["ops"].as_array().unwrap().iter().position(|op| op == "tanh").unwrap();
    let column = graph["nodes"]["op"].as_array().unwrap();
    let id = column.iter().position(|op| op.as_u64() == Some(tanh as u64)).unwrap();
    let node = get(address, &format!("/api/recording/node?id={id}")).json();
    let part = node["node"]["part"].as_u64().unwrap() as usize;
    assert_eq!(parts[part], "1");
    let stats = &node["node"]["value"]["stats"];
    assert_eq!(stats["count"], 192);
    let bins = stats["histogram"]["counts"].as_array().unwrap();
    assert_eq!(bins.iter().filter_map(Value::as_u64).sum::<u64>(), 192);
    let tape = get(address, "/api/recording/tape?from=2&count=3").json();
    assert_eq!((&tape["from"], tape["nodes"].as_array().unwrap().len()), (&Value::from(2), 3));
    let sweep = get(address, "/api/recording/sweep").json();
    assert_eq!(sweep["seed"]["cotangent"]["data"], 1.0);
    assert!(sweep["visits"].as_array().unwrap().len() > 4);
    let memory = get(address, "/api/recording/memory").json();
    let line = memory["runs"][0]["timeline"].as_array().unwrap();
    // How many bytes: of the whole process, in which other tests allocate and free meanwhile.
    assert!(line.iter().any(|m| m["phase"] == "backward" && m["bytes"].is_u64()));
    // The mean is of few elements: its Jacobian is computed by the engine from what was recorded.
    let last = graph["result"].as_u64().unwrap();
    let op = get(address, &format!("/api/recording/op?id={last}")).json();
    assert_eq!(op["operands"][0]["jacobian"]["rows"], 1, "{op}");
    for path in
        ["/api/recording/node?id=100000", "/api/recording/node", "/api/recording/tape?from=x"]
    {
        assert_eq!(get(address, path).problem(), (400, "request".into()), "{path}");
    }
    assert_eq!(get(address, "/api/recording/program").status, 404);
    assert_eq!(get(address, "/api/recording/../../etc/passwd").status, 404);
}

#[test]
fn programs_are_exported_with_their_stages() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("program.pullback");
    let specs = [Spec::cpu(DType::F32, [64])];
    let program =
        trace(|x: &[Tensor]| (x[0].sin() * x[0].exp()).tanh(), &specs).expect("a program");
    record_program(&path, &program).expect("written");
    let address =
        serve(Subject::Recording(Box::new(OpenedRecording::file(&path).expect("a recording"))));
    let shown = get(address, "/api/recording/program").json();
    let names: Vec<&str> =
        shown["stages"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert!(names[0] == "trace" && names.contains(&"fuse"), "{names:?}");
    assert_eq!(shown["regions"].as_array().unwrap().len(), 1);
}

/// A whole training step of a GPT: compact, in its parts, with a gradient for each parameter.
#[test]
fn a_step_of_a_gpt_is_compact() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("gpt.pullback");
    let config = GptConfig {
        vocabulary: 65,
        length: 16,
        width: 32,
        heads: 2,
        layers: 2,
        ..GptConfig::default()
    };
    let model = Gpt::new(&config);
    let ids = Key::new(3).randint([4, 16], 0, 65);
    pullback_nn::record(&path, &model, || model.loss(&ids, &ids).backward()).expect("recorded");
    let bytes = std::fs::metadata(&path).expect("a file").len();
    let opened = OpenedRecording::file(&path).expect("a recording");
    assert!(opened.nodes() > 60 && bytes < 1000 * opened.nodes() as u64, "{bytes} bytes");
    let graph = opened.answer("/api/recording", "").expect("a graph");
    let parts = graph["parts"].as_array().unwrap();
    assert!(parts.iter().any(|part| !part["parent"].is_null()), "{parts:?}");
    let kinds = graph["nodes"]["kind"].as_array().unwrap();
    let graded = &graph["nodes"]["gradient"];
    let mut parameters = 0;
    for (id, _) in kinds.iter().enumerate().filter(|(_, kind)| *kind == "parameter") {
        assert!(graded[id].as_f64().is_some_and(f64::is_finite), "{}", graph["nodes"]["name"][id]);
        parameters += 1;
    }
    assert_eq!(parameters, model.parameters().len());
}

/// Files that are not recordings, or not whole, are said to be so.
#[test]
fn damaged_files_get_a_sentence() {
    let x = Tensor::from(2.0).requires_grad();
    let (_, recording) = captured(&[("x", &x)], || x.square().backward().expect("a gradient"));
    let whole = recording.to_bytes();
    let message = |bytes: &[u8]| match OpenedRecording::bytes("x".into(), bytes) {
        Ok(_) => panic!("it is damaged"),
        Err(problem) => problem.message,
    };
    for end in 0..whole.len() {
        assert!(message(&whole[..end]).len() > 20);
    }
    assert!(message(&whole[..whole.len() - 1]).contains("truncated"));
    assert!(message(&[&whole[..], b"x"].concat()).contains("follow the end"));
    assert!(message(b"PNG").contains("not a recording"));
    let newer = whole.iter().position(|&b| b == b'\n').unwrap() + 1;
    let mut other = whole.clone();
    other[newer] = 9;
    assert!(message(&other).contains("version 9"));
    // A count that no file could hold takes no memory.
    let mut huge = whole[..newer + 1].to_vec();
    huge.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    assert!(message(&huge).contains("at most"));
    assert!(OpenedRecording::file(std::path::Path::new("/nowhere/at/all")).is_err());
}

/// A compiled function is a part of its own: its equations with specs and lines, and the values of
/// its results, which what follows is computed from.
#[test]
fn a_compiled_call_shows_its_equations() {
    let w = Tensor::from_vec((0..64).map(|i| (i as f32 * 0.3).cos()).collect::<Vec<_>>(), [8, 8]);
    let f = jit(|x: &Tensor| (x.matmul(&w).tanh() * 2.0).sum_over(1));
    let x = Tensor::full([4, 8], 0.5f32);
    let plain = f.of(&x).to_vec::<f32>();
    let ((y, z), recording) = captured(&[("x", &x)], || {
        let y = f.of(&x);
        let z = y.square().sum();
        f.of(&x);
        (y, z)
    });
    assert_eq!(y.to_vec::<f32>(), plain);
    assert_eq!(recording.parts, ["jit call 1", "jit call 2"]);
    let inside = |part: u32| recording.nodes.iter().filter(move |n| n.part == Some(part));
    let names: Vec<&str> =
        inside(0).filter_map(|n| n.op).map(|op| &recording.names[op as usize].0[..]).collect();
    assert!(["dot", "tanh", "mul", "sum"].iter().all(|op| names.contains(op)), "{names:?}");
    assert_eq!(inside(0).count(), inside(1).count());
    for node in inside(0).filter(|n| n.op.is_some()) {
        let line = &recording.lines[node.line.expect("a line") as usize];
        assert!(line.contains("recordings.rs"), "{line}");
    }
    // Its operand is the named tensor, and its result is the operand of what follows.
    let named = leaf(&recording, "x") as u32;
    assert!(recording.nodes.iter().any(|n| n.operands.contains(&named)));
    let known = |n: &&pullback::record_file::RecordedNode| n.value != Sampled::Unknown;
    let result = inside(0).rfind(known).expect("a result");
    let Sampled::Whole(values) = &result.value else { panic!("{:?}", result.value) };
    assert!(values.iter().zip(&plain).all(|(a, b)| *a == f64::from(*b)));
    let place = recording.nodes.iter().position(|n| n == result).expect("a node") as u32;
    let next = recording.nodes.iter().find(|n| n.operands == [place] && n.part.is_none());
    let next = next.expect("what follows").op.expect("an op");
    assert_eq!(recording.names[next as usize].0, "square");
    let Sampled::Whole(last) = &recording.nodes.iter().rfind(|n| n.part.is_none()).unwrap().value
    else {
        panic!("a number")
    };
    assert_eq!(last[..], [f64::from(z.item::<f32>())]);
    // The program itself is there, as traced and as it runs, and the call took its time.
    assert_eq!(recording.stages.len(), 2);
    let of_call = |m: &&pullback::record_file::RecordedOp| recording.ops[m.op as usize] == "jit";
    assert_eq!(recording.moments.iter().filter(of_call).count(), 2);
    assert_eq!(Recording::from_bytes(&recording.to_bytes()).as_ref(), Ok(&recording));
    let address = serve(Subject::Recording(Box::new(
        OpenedRecording::bytes("jit".into(), &recording.to_bytes()).expect("it opens"),
    )));
    let program = get(address, "/api/recording/program").json();
    assert_eq!(program["stages"].as_array().map(Vec::len), Some(2), "{program}");
}

/// A compiled training step writes its parameters: they are new values, which the next step reads.
#[test]
fn a_compiled_step_replaces_what_it_writes() {
    let w = Tensor::from([1f32, 2.0, 3.0]).requires_grad();
    let step = jit(|x: &Tensor| {
        w.zero_grad();
        let loss = (&w * x).square().sum();
        loss.backward().expect("a gradient");
        let g = w.grad().expect("a gradient");
        pullback::no_grad(|| w.sub_(&(g * 0.1)));
        loss.detach()
    });
    let x = Tensor::from([1f32, 0.5, 0.25]);
    step.of(&x);
    let (losses, recording) =
        captured(&[("w", &w)], || [step.of(&x).item::<f32>(), step.of(&x).item::<f32>()]);
    assert!(losses[1] < losses[0]);
    let first = leaf(&recording, "w") as u32;
    let reads = |part: &str| {
        let part = recording.parts.iter().position(|p| p == part).map(|p| p as u32);
        recording.nodes.iter().filter(move |n| n.part == part && part.is_some())
    };
    assert!(reads("jit call 1").any(|n| n.operands.contains(&first)));
    // The second call reads what the first one wrote.
    assert!(!reads("jit call 2").any(|n| n.operands.contains(&first)));
    let written = reads("jit call 2").flat_map(|n| &n.operands).any(|&o| {
        let node = &recording.nodes[o as usize];
        node.part == Some(0) && node.value != Sampled::Unknown
    });
    assert!(written, "the second step starts from the result of the first");
    assert!(
        matches!(&recording.nodes[first as usize].gradient, Some(Sampled::Whole(g)) if g.len() == 3)
    );
}
