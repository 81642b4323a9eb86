//! The health of a training run.

use super::{get, serve};
use pullback::{Key, Tensor, no_grad};
use pullback_explore::Subject;
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
use pullback_nn::train::{JsonLog, LayerLog, Trainer};
use pullback_nn::{Layer, Linear, Module, Sequential, Tanh};
use serde_json::Value;

/// A deep chain of saturating layers with tiny weights: gradients vanish towards the input.
#[test]
fn vanishing_layers_are_flagged() {
    let place = tempfile::tempdir().expect("a folder");
    let mut model = Sequential::new();
    for _ in 0..6 {
        model = model.then(Linear::new(8, 8)).then(Tanh);
    }
    let model = model.then(Linear::new(8, 1));
    for (name, x) in model.named_parameters() {
        if name.ends_with("weight") && name != "12.weight" {
            no_grad(|| drop(x.mul_(0.02)));
        }
    }
    let opt = Sgd { lr: 1e-3, ..Sgd::default() }.over(model.parameters()).expect("an optimiser");
    let batches = vec![Key::new(1).normal([16, 8], pullback::DType::F32, 0.0, 1.0); 5];
    let step = |x: &Tensor| -> pullback::Result<Tensor> {
        opt.zero_grad();
        let loss = (model.forward(x) - 1.0).square().mean();
        loss.backward()?;
        opt.step()?;
        Ok(loss)
    };
    Trainer::new(&model, &opt)
        .callback(JsonLog::new(place.path().join("log.jsonl")))
        .callback(LayerLog::new(place.path().join("layers.jsonl")))
        .run(&batches, step)
        .expect("a run");
    let address = serve(Subject::Run(place.path().to_path_buf()));
    let run = get(address, "/api/run").json();
    assert_eq!(run["steps"], 5);
    let named = |list: &str, name: &str| {
        run[list].as_array().unwrap().iter().find(|x| x["name"] == name).cloned().expect("listed")
    };
    assert_eq!(named("series", "loss")["points"].as_array().unwrap().len(), 5);
    let layer = named("layers", "12.weight");
    assert_eq!(layer["parameters"], 8);
    assert!(layer["gradient"][0][1].as_f64() > Some(0.0));
    let flags = run["flags"].as_array().unwrap();
    let of = |kind: &str| -> Vec<&str> {
        let mine = flags.iter().filter(|flag| flag["kind"] == kind);
        mine.filter_map(|flag| flag["layer"].as_str()).collect()
    };
    assert!(of("vanishing").contains(&"0.weight"), "{flags:?}");
    assert!(!of("vanishing").contains(&"12.weight"));
    // A log that is being written has an incomplete last line; one that is damaged is said to be.
    let log = place.path().join("log.jsonl");
    let text = std::fs::read_to_string(&log).expect("a log");
    std::fs::write(&log, format!("{text}{{\"step\": 6")).expect("written");
    assert_eq!(get(address, "/api/run").status, 200);
    std::fs::write(&log, "nonsense\n").expect("written");
    assert_eq!(get(address, "/api/run").status, 400);
    std::fs::write(place.path().join("layers.jsonl"), "{\"step\": 1, \"layers\": 7}\n")
        .expect("written");
    std::fs::write(&log, text).expect("written");
    let broken: Value = get(address, "/api/run").json();
    assert!(broken["error"]["message"].as_str().unwrap().contains("line 1"), "{broken}");
}

/// Only the folder that was named is read, and no file in it that is too large.
#[test]
fn files_of_a_run_are_in_its_folder() {
    let place = tempfile::tempdir().expect("a folder");
    let [folder, elsewhere] = ["run", "secret"].map(|name| place.path().join(name));
    std::fs::create_dir(&folder).expect("a folder");
    let row = r#"{"step":1,"epoch":0,"seconds":0.5,"loss":2.5}"#;
    std::fs::write(&elsewhere, format!("{row}\n")).expect("written");
    let address = serve(Subject::Run(folder.clone()));
    let refused = |what: &str| {
        let reply = get(address, "/api/run");
        assert_eq!(reply.problem(), (400, "file".into()), "{what}");
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_string();
        assert!(message.contains(what), "{message}");
    };
    let log = folder.join("log.jsonl");
    refused("log.jsonl cannot be read");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&elsewhere, &log).expect("a link");
        refused("log.jsonl is not a file");
        std::fs::remove_file(&log).expect("removed");
    }
    std::fs::create_dir(&log).expect("a folder");
    refused("log.jsonl is not a file");
    std::fs::remove_dir(&log).expect("removed");
    // Nothing but its length is on the disk.
    std::fs::File::create(&log).and_then(|file| file.set_len((256 << 20) + 1)).expect("a length");
    refused("log.jsonl is larger than");
    std::fs::copy(&elsewhere, &log).expect("copied");
    assert_eq!(get(address, "/api/run").status, 200);
}
