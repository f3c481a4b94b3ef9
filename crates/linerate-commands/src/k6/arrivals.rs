//! Iterations that begin at a rate.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use linerate_script::Executor;
use linerate_script::schedule::IterationArrivals;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::shared::{CutSignal, EarlyEnd};
use super::worker::{RunUser, Worker};

/// Users that wait for an iteration.
#[derive(Debug, Default)]
struct IdleUsers {
    waiting: RefCell<Vec<oneshot::Sender<u64>>>,
    /// No iteration begins any more.
    is_over: Cell<bool>,
}

/// Starts iterations of a scenario when they are due, each with a user that is idle. If none is, a new one comes, up to the
/// scenario's limit; beyond it the iteration is dropped.
pub(super) async fn arrive(worker: Rc<Worker>, at: usize, users: Vec<RunUser>, begin: Instant) {
    let run = &worker.plan.runs[at];
    let Executor::ArrivalRate { start, stages, max_vus, .. } = &run.scenario.executor else { return };
    let threads = run.threads(worker.plan.threads);
    if worker.index >= threads {
        return;
    }
    let most = u64::from(*max_vus);
    let mine = |n: u64| n / threads + u64::from(n % threads > worker.index);
    let (idle, mut tasks, mut made) = (Rc::<IdleUsers>::default(), JoinSet::new(), users.len() as u64);
    let cuts: RefCell<Vec<Rc<CutSignal>>> =
        RefCell::new(users.iter().map(|user| Rc::clone(&user.cut)).collect());
    for user in users {
        tasks.spawn_local(serve(Rc::clone(&worker), at, user, Rc::clone(&idle)));
    }
    // They say that they are idle.
    tokio::task::yield_now().await;
    let all = IterationArrivals::new(*start, stages).enumerate();
    for (_, due) in all.filter(|(n, _)| *n as u64 % threads == worker.index) {
        if worker.plan.shared.ended().is_some() {
            break;
        }
        let due = begin + due;
        if Instant::now() < due {
            tokio::select! {
                () = sleep_until(due) => {}
                () = worker.plan.shared.wait_end() => break,
            }
        }
        let mut is_taken = hand_over(&worker, at, &idle);
        if !is_taken && made < mine(most) {
            match worker.load(run, made * threads + worker.index) {
                Ok(user) => {
                    made += 1;
                    cuts.borrow_mut().push(Rc::clone(&user.cut));
                    tasks.spawn_local(serve(Rc::clone(&worker), at, user, Rc::clone(&idle)));
                    tokio::task::yield_now().await;
                    is_taken = hand_over(&worker, at, &idle);
                }
                Err(why) => worker.plan.shared.end(EarlyEnd::Broken(why)),
            }
        }
        if !is_taken {
            worker.dropped(run);
        }
    }
    // Users that wait end with their senders.
    idle.is_over.set(true);
    idle.waiting.borrow_mut().clear();
    let end = begin + run.scenario.executor.duration() + run.scenario.graceful_stop;
    let mut is_cut = false;
    loop {
        tokio::select! {
            next = tasks.join_next() => if next.is_none() { return },
            () = sleep_until(end), if !is_cut => {
                is_cut = true;
                cuts.borrow().iter().for_each(|cut| cut.cut());
            }
        }
    }
}

/// Gives an idle user an iteration.
fn hand_over(worker: &Worker, at: usize, idle: &IdleUsers) -> bool {
    loop {
        let Some(user) = idle.waiting.borrow_mut().pop() else { return false };
        // One that has ended meanwhile takes nothing.
        if !user.is_closed() {
            return user.send(worker.begun(&worker.plan.runs[at])).is_ok();
        }
    }
}

/// A user that iterates when it is told to.
async fn serve(worker: Rc<Worker>, at: usize, mut user: RunUser, idle: Rc<IdleUsers>) {
    let run = &worker.plan.runs[at];
    while !idle.is_over.get() {
        let (sender, told) = oneshot::channel();
        idle.waiting.borrow_mut().push(sender);
        let Some(Ok(number)) = Rc::clone(&user.cut).unless_cut(told).await else { break };
        if !worker.iterate_as(run, &mut user, number).await {
            break;
        }
    }
    worker.plan.shared.users.fetch_sub(1, Ordering::Relaxed);
}
