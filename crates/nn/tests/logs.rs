//! Logs: what is in them, also after resuming; events as a reader of their own sees them; lines of
//! progress.

use pullback::{Result, Tensor, Tree};
use pullback_nn::Module;
use pullback_nn::optim::{Optimizer, Sgd, UpdateRule};
use pullback_nn::state::Checkpoints;
use pullback_nn::train::{
    CsvLog, EventWriter, Every, JsonLog, Metrics, Outcome, ProgressBar, TensorBoard, Trainer,
    read_log,
};
use std::path::Path;
use std::sync::{Arc, Mutex};

#[path = "logs/events.rs"]
mod events;

#[derive(Tree)]
struct Model {
    weight: Tensor,
}

/// Trains with all logs in a folder until this many steps are taken; resumes if there is a
/// checkpoint. Checkpoints are at steps 4 and 8.
fn train(folder: &Path, steps: u64) -> Outcome {
    let model = Model { weight: Tensor::from([4.0, -2.0]).requires_grad() };
    let optimizer = Sgd { lr: 0.25, ..Sgd::default() }.over(model.parameters()).unwrap();
    let step = |scale: &f64| {
        optimizer.zero_grad();
        let loss = model.weight.square().sum() * *scale;
        loss.backward()?;
        optimizer.step()?;
        Ok(loss)
    };
    let run = |checkpoints: Option<Checkpoints>| {
        let trainer = Trainer::new(&model, &optimizer).steps(steps).resume(true);
        let trainer = match checkpoints {
            Some(checkpoints) => trainer.checkpoints(Every::Steps(4), checkpoints),
            None => trainer,
        };
        trainer
            .evaluate(Every::Steps(3), |model: &Model| Ok([("error", model.weight.abs().sum())]))
            .callback(CsvLog::new(folder.join("log.csv")))
            .callback(JsonLog::new(folder.join("log.jsonl")).every(2))
            .callback(TensorBoard::new(folder.join("events")).histograms_every(4))
            .run(&vec![1.0, 0.5, 1.0], step)
    };
    run(Some(Checkpoints::new(folder.join("checkpoints")))).unwrap()
}

/// A log's cells without the times.
fn csv(folder: &Path) -> Vec<Vec<String>> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).from_path(folder.join("log.csv")).unwrap();
    let cells = |row: csv::StringRecord| -> Vec<String> {
        row.iter().enumerate().filter(|(i, _)| *i != 2).map(|(_, cell)| cell.to_string()).collect()
    };
    reader.records().map(|row| cells(row.unwrap())).collect()
}

#[test]
fn tables_have_a_row_a_step_and_get_columns_when_they_need_them() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), 5);
    let rows = csv(folder.path());
    assert_eq!(rows[0], ["step", "epoch", "loss", "lr", "epoch_loss", "val_error"]);
    assert_eq!(rows[1], ["1", "0", "20", "0.25", "", ""]);
    assert_eq!(rows[2][..4], ["2", "0", "2.5", "0.25"]);
    assert_eq!(rows[3][..2], ["3", "1"]);
    assert!(rows[3][4].parse::<f64>().is_ok() && rows[3][5].parse::<f64>().is_ok());
    // The last step is evaluated, too.
    assert!(rows[5][4].is_empty() && rows[5][5].parse::<f64>().is_ok());
    assert_eq!(rows.len(), 6);
}

#[test]
fn json_lines_come_every_so_often_and_when_there_is_more_to_say() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = train(folder.path(), 5);
    let rows = read_log(folder.path().join("log.jsonl")).unwrap();
    let steps: Vec<u64> = rows.iter().map(|row| row.step).collect();
    assert_eq!(steps, [2, 3, 4, 5]);
    assert_eq!(rows[0].metrics.get("loss"), Some(2.5));
    assert_eq!(rows[0].metrics.len(), 2);
    assert_eq!(rows[1].metrics.get("epoch_loss"), outcome.metrics.get("epoch_loss"));
    assert!(rows.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds));
}

#[test]
fn no_step_is_twice_in_a_log_of_a_run_that_was_killed_and_resumed() {
    let (straight, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train(straight.path(), 10);
    let folder = killed.path();
    train(folder, 7);
    // As if it had been killed at step 7, in the middle of a line: the checkpoint of its end was
    // not saved.
    let checkpoints = Checkpoints::new(folder.join("checkpoints"));
    std::fs::remove_dir_all(checkpoints.list().unwrap().pop().unwrap()).unwrap();
    for log in ["log.csv", "log.jsonl"] {
        use std::io::Write as _;
        let mut file = std::fs::OpenOptions::new().append(true).open(folder.join(log)).unwrap();
        file.write_all(b"4,\"{").unwrap();
    }
    assert_eq!(train(folder, 10).step, 10);
    // The evaluation after the last step of the first part is not there in the second, because that
    // step is not.
    assert_eq!(csv(folder), csv(straight.path()));
    let rows = |folder: &Path| -> Vec<(u64, String)> {
        let rows = read_log(folder.join("log.jsonl")).unwrap();
        rows.iter().map(|row| (row.step, row.metrics.to_string())).collect()
    };
    assert_eq!(rows(folder), rows(straight.path()));
}

#[test]
fn a_fresh_run_begins_a_fresh_log() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("log.csv"), "step,epoch,seconds,old\n1,0,0,7\n").unwrap();
    std::fs::write(folder.path().join("log.jsonl"), "{\"step\":1}\n").unwrap();
    train(folder.path(), 2);
    assert_eq!(csv(folder.path())[0], ["step", "epoch", "loss", "lr", "val_error"]);
    assert_eq!(read_log(folder.path().join("log.jsonl")).unwrap().len(), 1);
}

#[test]
fn a_log_that_is_none_is_refused_by_line_and_a_folder_that_is_none_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.jsonl");
    std::fs::write(&path, "{\"step\":1,\"epoch\":0,\"seconds\":0.5,\"loss\":null}\n[]\n").unwrap();
    let error = read_log(&path).unwrap_err().to_string();
    assert!(error.contains("bad.jsonl: line 2 is not a row of a log"), "{error}");
    std::fs::write(&path, "{\"step\":1,\"epoch\":0,\"seconds\":0.5,\"loss\":null}\n{\"ste")
        .unwrap();
    assert!(read_log(&path).unwrap()[0].metrics.get("loss").unwrap().is_nan());
    let model = Model { weight: Tensor::from([1.0]).requires_grad() };
    let optimizer = Sgd::default().over(model.parameters()).unwrap();
    let nowhere = folder.path().join("none");
    let file = folder.path().join("bad.jsonl");
    let run =
        |trainer: Trainer<Model>| trainer.run(&vec![0.0], |&x| Ok(x)).unwrap_err().to_string();
    let trainer = || Trainer::new(&model, &optimizer);
    let error = run(trainer().callback(JsonLog::new(nowhere.join("log.jsonl"))));
    assert!(error.contains("log.jsonl cannot be written"), "{error}");
    let error = run(trainer().callback(CsvLog::new(nowhere.join("log.csv"))));
    assert!(error.contains("log.csv cannot be written"), "{error}");
    let error = run(trainer().callback(TensorBoard::new(file)));
    assert!(error.contains("tensorboard: ") && error.contains("cannot be written"), "{error}");
}

#[test]
fn a_metric_that_is_named_as_a_column_does_not_spoil_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let model = Model { weight: Tensor::from([1.0]).requires_grad() };
    let optimizer = Sgd::default().over(model.parameters()).unwrap();
    let (json, table) = (folder.path().join("log.jsonl"), folder.path().join("log.csv"));
    Trainer::new(&model, &optimizer)
        .callback(JsonLog::new(&json))
        .callback(CsvLog::new(&table))
        .run(&vec![0.5], |&x| Ok(Metrics::from([("loss", x), ("step", 7.5), ("epoch", 8.5)])))
        .unwrap();
    let rows = read_log(&json).unwrap();
    assert_eq!((rows[0].step, rows[0].epoch, rows[0].metrics.get("loss")), (1, 1, Some(0.5)));
    assert!(csv(folder.path())[1].starts_with(&["1".to_string(), "1".to_string()]));
}

/// Everything in the event files of a folder, in the order of the files' names.
fn all_events(folder: &Path) -> Vec<events::Event> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().flatten().map(|f| f.path()).collect();
    files.sort();
    files.iter().flat_map(|path| events::read(&std::fs::read(path).unwrap())).collect()
}

#[test]
fn events_hold_scalars_and_histograms() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = train(folder.path(), 5);
    let events = all_events(&folder.path().join("events"));
    assert_eq!(events[0].version.as_deref(), Some("brain.Event:2"));
    let scalars = |tag: &str| -> Vec<(u64, f32)> {
        let wanted = events.iter().filter(|event| event.tag.as_deref() == Some(tag));
        wanted.filter_map(|event| Some((event.step, event.scalar?))).collect()
    };
    assert_eq!(scalars("train/loss").len(), 5);
    assert_eq!(scalars("train/loss")[..2], [(1, 20.0), (2, 2.5)]);
    assert_eq!(scalars("train/lr"), [(1, 0.25), (2, 0.25), (3, 0.25), (4, 0.25), (5, 0.25)]);
    let error = outcome.metrics.get("val_error").unwrap() as f32;
    assert_eq!(scalars("val/error").last(), Some(&(5, error)));
    assert_eq!(scalars("epoch/loss").len(), 1);
    for tag in ["weights/weight", "gradients/weight"] {
        let found: Vec<_> =
            events.iter().filter(|event| event.tag.as_deref() == Some(tag)).collect();
        assert_eq!(found.len(), 1, "{tag}");
        let histogram = found[0].histogram.as_ref().unwrap();
        assert_eq!((found[0].step, histogram.count), (4, 2.0));
        assert_eq!(histogram.buckets.iter().sum::<f64>(), 2.0);
        assert_eq!(histogram.limits.len(), histogram.buckets.len());
        assert!(histogram.limits.is_sorted());
    }
}

#[test]
fn a_resumed_run_says_from_where() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), 5);
    train(folder.path(), 7);
    let events = all_events(&folder.path().join("events"));
    let starts: Vec<u64> = events.iter().filter(|e| e.is_start).map(|e| e.step).collect();
    assert_eq!(starts, [6]);
}

#[test]
fn histograms_put_values_in_their_buckets() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = EventWriter::create(folder.path()).unwrap();
    let values = [-3.0, 0.0, 1e-20, 0.25, 0.25, 1e30, f64::NAN, f64::INFINITY];
    writer.histogram("h", 1, &values).unwrap();
    writer.histogram("none", 2, &[f64::NAN]).unwrap();
    let events = events::read(&std::fs::read(writer.path()).unwrap());
    let histogram = events[1].histogram.as_ref().unwrap();
    assert_eq!((histogram.least, histogram.most, histogram.count), (-3.0, 1e30, 6.0));
    for value in [-3.0, 0.0, 1e-20, 0.25, 1e30] {
        let bucket = histogram.limits.partition_point(|&limit| limit <= value);
        let expected = values.iter().filter(|&&other| {
            other.is_finite() && histogram.limits.partition_point(|&limit| limit <= other) == bucket
        });
        assert_eq!(histogram.buckets[bucket], expected.count() as f64, "{value}");
        // A bucket begins where the one before it ends.
        assert!(histogram.limits[bucket - 1] <= value && value < histogram.limits[bucket]);
    }
    let none = events[2].histogram.as_ref().unwrap();
    assert_eq!((none.count, none.buckets.iter().sum::<f64>()), (0.0, 0.0));
}

/// Something to write to and look at.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn progress_is_a_line_now_and_then_and_for_each_epoch_where_there_is_no_terminal() -> Result<()> {
    let model = Model { weight: Tensor::from([1.0]).requires_grad() };
    let optimizer = Sgd { lr: 0.5, ..Sgd::default() }.over(model.parameters())?;
    let paper = Paper::default();
    Trainer::new(&model, &optimizer)
        .epochs(2)
        .evaluate(Every::Epochs(1), |_: &Model| Ok(0.25))
        .callback(ProgressBar::new().lines_to(2, paper.clone()))
        .run(&vec![0.5; 3], |&x| Ok(x))?;
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<(&str, &str)> =
        text.lines().map(|line| line.split_once(" s: ").unwrap()).collect();
    let heads: Vec<&str> =
        lines.iter().map(|(head, _)| head.rsplit_once(", ").unwrap().0).collect();
    let step = ["step 2/6", "epoch 1, step 3/6", "step 4/6", "epoch 2, step 6/6", "step 6/6"];
    assert_eq!(heads, step);
    assert_eq!(lines[0].1, "loss 0.5, lr 0.5");
    assert_eq!(lines[1].1, "loss 0.5, lr 0.5, epoch_loss 0.5, val_loss 0.25");
    assert_eq!(lines[3].1, "loss 0.5, lr 0.5, epoch_loss 0.5, val_loss 0.25");
    assert_eq!(lines[4].1, "finished");
    Ok(())
}

#[test]
fn a_bar_without_a_terminal_goes_through() -> Result<()> {
    // The standard error of tests is captured or a pipe in most cases; either way this must go
    // through.
    let model = Model { weight: Tensor::from([1.0]).requires_grad() };
    let optimizer = Sgd::default().over(model.parameters())?;
    let trainer = Trainer::new(&model, &optimizer).epochs(3).callback(ProgressBar::new());
    assert_eq!(trainer.run(&vec![0.5], |&x| Ok(x))?.step, 3);
    Ok(())
}
