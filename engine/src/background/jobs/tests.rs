//! Jobs through the engine, on a real catalog. What is waited for is a condition, never a time.

use super::*;
use crate::{
    Engine,
    background::jobs::{
        run::JobRun,
        spec::{JobSpec, report},
    },
    config::EngineConfig,
    tests::Deployment,
};
use catalog::CatalogError;
use futures::FutureExt;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

/// A job that counts to `to`, one step per permit, remembering where it is.
#[derive(Clone)]
struct Counter {
    steps: Arc<Semaphore>,
    /// Every number that was counted, in order.
    counted: Arc<Mutex<Vec<u64>>>,
    waiting: Arc<AtomicU64>,
}

#[derive(Deserialize)]
struct To {
    to: u64,
}

impl Counter {
    fn new() -> Self {
        Self { steps: Arc::new(Semaphore::new(0)), counted: Arc::default(), waiting: Arc::default() }
    }

    fn spec(&self) -> JobSpec {
        let (counter, backlog) = (self.clone(), self.waiting.clone());
        JobSpec::new("count", "Counts.", "numbers", move |run| {
            let counter = counter.clone();
            async move { report(counter.count(&run).await) }
        })
        .takes::<To>()
        .resumes()
        .backlog(move || {
            let waiting = backlog.load(Ordering::Relaxed);
            async move { Ok(waiting) }
        })
    }

    async fn count(&self, run: &JobRun) -> Result<Value, EngineError> {
        let to = if self.waiting.swap(0, Ordering::Relaxed) > 0 { 1 } else { run.parameters::<To>()?.to };
        let mut at = run.cursor::<u64>()?.unwrap_or(0);
        while at < to {
            tokio::select! {
                step = self.steps.acquire() => step.expect("never closed").forget(),
                () = run.token().cancelled() => return Err(run.check().expect_err("it was told to end")),
            }
            at += 1;
            self.counted.lock().expect("sound").push(at);
            run.progress(at, Some(to));
            run.checkpoint(&at).await?;
        }
        Ok(json!({ "counted": at }))
    }

    fn counted(&self) -> Vec<u64> {
        self.counted.lock().expect("sound").clone()
    }

    async fn has_counted(&self, len: usize) {
        while self.counted().len() < len {
            tokio::task::yield_now().await;
        }
    }
}

async fn start(counter: &Counter) -> Deployment {
    Deployment::with_jobs(|_, _| vec![counter.spec()], |_| {}).await
}

async fn row_of_the_job(engine: &Engine) -> JobRow {
    let rows = engine.foundation.catalog.jobs().await.expect("read");
    rows.into_iter().find(|row| row.name == "count").expect("there")
}

async fn until(engine: &Arc<Engine>, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let seen = engine.jobs.job("count").await.expect("catalog answers");
        if wanted(&seen) {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_with_its_parameters_shows_its_progress_and_gives_a_report() {
    let counter = Counter::new();
    let deployment = start(&counter).await;
    let engine = &deployment.engine;
    let refused = engine.jobs.start_job("count", json!({ "to": "x" })).await;
    assert!(matches!(refused, Err(EngineError::JobRefused(_))));
    assert!(matches!(engine.jobs.start_job("nothing", Value::Null).await, Err(EngineError::NoJob(_))));

    let started = engine.jobs.start_job("count", json!({ "to": 3 })).await.expect("started");
    assert!(matches!(engine.jobs.start_job("count", json!({ "to": 4 })).await, Err(EngineError::JobRuns(_))));
    let again = engine.jobs.start_job("count", json!({ "to": 3 })).await.expect("joined");
    assert_eq!((again.run, started.joined, again.joined), (started.run, false, true));
    counter.steps.add_permits(2);
    let seen = until(engine, |seen| seen["progress"]["done"] == 2).await;
    assert_eq!((&seen["running"], &seen["progress"]["total"]), (&json!(true), &json!(3)));
    assert_eq!((&seen["run"], &seen["parameters"]), (&json!(started.run), &json!({ "to": 3 })));
    counter.steps.add_permits(1);
    let seen = until(engine, |seen| seen["running"] == false).await;
    assert_eq!((&seen["last_result"], &seen["last_outcome"]), (&json!("ok"), &json!({ "counted": 3 })));
    assert_eq!(deployment.metrics.job_runs_total.with_label_values(&["count", "ok"]).get(), 1);

    counter.steps.add_permits(2);
    let again = engine.jobs.run_job("count", json!({ "to": 2 })).await.expect("ran");
    assert_eq!(again, json!({ "counted": 2 }), "a new run begins anew");
    assert_eq!(counter.counted(), [1, 2, 3, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_run_goes_on_from_its_cursor_and_a_cancelled_one_is_forgotten() {
    let counter = Counter::new();
    let deployment = start(&counter).await;
    let engine = &deployment.engine;
    engine.jobs.start_job("count", json!({ "to": 4 })).await.expect("started");
    counter.steps.add_permits(2);
    counter.has_counted(2).await;
    engine.jobs.act_on_job("count", JobAction::Pause).await.expect("paused");
    let seen = until(engine, |seen| seen["running"] == false).await;
    assert_eq!(
        (&seen["paused"], &seen["waiting"], &seen["last_result"]),
        (&json!(true), &json!(true), &json!("paused"))
    );
    let refused = engine.jobs.start_job("count", json!({ "to": 9 })).await;
    assert!(matches!(refused, Err(EngineError::JobRefused(_))), "a run waits");
    assert!(engine.jobs.settle(Duration::from_secs(60)).await.expect("settles"), "what is paused is not waited for");

    counter.steps.add_permits(1);
    engine.jobs.act_on_job("count", JobAction::Resume).await.expect("resumed");
    counter.has_counted(3).await;
    assert_eq!(counter.counted(), [1, 2, 3]);
    engine.jobs.act_on_job("count", JobAction::Cancel).await.expect("cancelled");
    let seen = until(engine, |seen| seen["running"] == false).await;
    assert_eq!((&seen["waiting"], &seen["last_result"]), (&json!(false), &json!("cancelled")));
    let nothing = engine.jobs.act_on_job("count", JobAction::Cancel).await;
    assert!(matches!(nothing, Err(EngineError::JobRefused(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_its_process_interrupted_goes_on_in_the_next() {
    let counter = Counter::new();
    let deployment = start(&counter).await;
    deployment.engine.jobs.start_job("count", json!({ "to": 3 })).await.expect("started");
    counter.steps.add_permits(1);
    counter.has_counted(1).await;
    let dir = deployment.stop().await;

    counter.steps.add_permits(2);
    let next = Deployment::reopened(dir, |_, _| vec![counter.spec()], |_| {}).await;
    let seen = until(&next.engine, |seen| seen["last_result"] == "ok").await;
    assert_eq!(seen["last_outcome"], json!({ "counted": 3 }));
    assert_eq!(counter.counted(), [1, 2, 3], "nothing was counted twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_the_same_as_an_interrupted_run_goes_on_with_it() {
    let counter = Counter::new();
    let deployment = start(&counter).await;
    let began = deployment.engine.jobs.start_job("count", json!({ "to": 3 })).await.expect("started");
    counter.steps.add_permits(1);
    counter.has_counted(1).await;
    let dir = deployment.stop().await;

    let unscheduled = |config: &mut EngineConfig| config.schedule_jobs = false;
    let next = Deployment::reopened(dir, |_, _| vec![counter.spec()], unscheduled).await;
    let jobs = &next.engine.jobs;
    let refused = jobs.start_job("count", json!({ "to": 9 })).await;
    assert!(matches!(refused, Err(EngineError::JobRefused(_))), "another run waits");
    let on = jobs.start_job("count", json!({ "to": 3 })).await.expect("goes on");
    assert_eq!((on.joined, on.first_run), (true, began.run));
    assert!(on.run > began.run);
    let same = jobs.start_job("count", json!({ "to": 3 })).await.expect("joined");
    assert_eq!((same.joined, same.run, same.first_run), (true, on.run, began.run));
    let seen = until(&next.engine, |seen| seen["running"] == true).await;
    assert_eq!((&seen["run"], &seen["first_run"]), (&json!(on.run), &json!(began.run)));
    counter.steps.add_permits(2);
    let seen = until(&next.engine, |seen| seen["running"] == false).await;
    assert_eq!((&seen["last_outcome"], &seen["first_run"]), (&json!({ "counted": 3 }), &json!(began.run)));
    assert_eq!(counter.counted(), [1, 2, 3], "nothing was counted twice");
    let fresh = jobs.start_job("count", json!({ "to": 3 })).await.expect("started");
    assert_eq!((fresh.joined, fresh.first_run), (false, fresh.run), "that one has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_lease_was_taken_ends_and_stores_nothing() {
    let counter = Counter::new();
    let deployment = start(&counter).await;
    let engine = &deployment.engine;
    engine.jobs.start_job("count", json!({ "to": 1_000_000 })).await.expect("started");
    counter.steps.add_permits(1);
    counter.has_counted(1).await;

    // As another process finds it: the lease is over, because this one was stopped for so long.
    let row = row_of_the_job(engine).await;
    let mine = run::lease_of(&row);
    engine.foundation.catalog.renew_job(&mine, 0).await.expect("shortened");
    let take = JobTake { name: "count".into(), epoch: engine.foundation.writer.epoch(), lease_ms: 600_000, rest_ms: 0 };
    let taken = loop {
        if let Some(row) = engine.foundation.catalog.take_job(take.clone()).await.expect("catalog answers") {
            break row;
        }
    };
    let theirs = run::lease_of(&taken);
    engine.foundation.catalog.save_job(&theirs, json!({ "cursor": 100, "unfinished": true })).await.expect("saved");

    // It wakes up: its next checkpoint that is stored tells it.
    let running = engine.jobs.run_of("count").expect("it believes that it runs");
    while !matches!(running.ended().now_or_never(), Some(Err(EngineError::Stopped(_)))) {
        counter.steps.add_permits(1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let row = row_of_the_job(engine).await;
    assert_eq!((row.fence, &row.state["cursor"]), (taken.fence, &json!(100)));
    assert_eq!(deployment.metrics.job_leases_lost_total.with_label_values(&["count"]).get(), 1);
    assert!(matches!(engine.foundation.catalog.save_job(&mine, json!(null)).await, Err(CatalogError::Fenced)));
}

#[tokio::test(flavor = "multi_thread")]
async fn settling_runs_what_waits_and_a_panic_is_a_failure_like_others() {
    let counter = Counter::new();
    let deployment = start(&counter).await;
    let engine = &deployment.engine;
    assert!(engine.jobs.settle(Duration::from_secs(60)).await.expect("settles"));
    assert_eq!(counter.counted(), [0u64; 0]);
    counter.waiting.store(5, Ordering::Relaxed);
    counter.steps.add_permits(1);
    assert!(engine.jobs.settle(Duration::from_secs(60)).await.expect("settles"));
    assert_eq!(counter.counted(), [1]);
    engine.jobs.start_job("count", json!({ "to": 2 })).await.expect("started");
    assert!(!engine.jobs.settle(Duration::from_millis(50)).await.expect("no error"), "a run is under way");

    let broken = JobSpec::new("broken", "Breaks.", "", |_| async { panic!("on purpose") });
    let deployment = Deployment::with_jobs(|_, _| vec![broken], |_| {}).await;
    let failed = deployment.engine.jobs.run_job("broken", Value::Null).await;
    assert!(matches!(failed, Err(EngineError::Other(_))));
    assert_eq!(deployment.metrics.job_runs_total.with_label_values(&["broken", "failed"]).get(), 1);
    assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settles"), "it is not tried for ever");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_does_not_schedule_leaves_jobs_alone() {
    let nothing = |config: &mut EngineConfig| config.schedule_jobs = false;
    let always = JobSpec::new("always", "", "", |_| async { Ok(Value::Null) }).every(Duration::ZERO).at_start();
    let deployment = Deployment::with_jobs(|_, _| vec![always], nothing).await;
    assert_eq!(deployment.engine.foundation.catalog.jobs().await.expect("read"), []);
    deployment.engine.jobs.run_job("always", Value::Null).await.expect("asked for, it runs");
}
