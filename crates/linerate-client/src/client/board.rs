//! State that callers and the driver of a client share: calls that wait, calls that have ended, and wakers. The lock
//! is held for moments only, never while bytes are read or written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use bytes::Bytes;
use http::{Request, Response};
use linerate_net::Time;
use tokio::sync::Semaphore;

use super::calls::{Done, News};
use super::cell::StreamCell;
use super::error::{Error, ErrorDetail};
use super::options::RequestOptions;
use super::statistics::Statistics;
use super::waiting::Waiter;

/// How a call ended.
pub(super) type CallResult = Result<Response<Bytes>, Error>;

/// A request of a caller to the driver.
pub(super) enum Command {
    /// A caller waits for a place, with the options of its request.
    Wait(Weak<Waiter>, RequestOptions),
    /// With the time at which the call was handed over, if that was not just now.
    Submit(u64, Request<Bytes>, Option<Time>),
    /// The response goes to the caller as it comes, and the request's body may follow: its length, if that is known.
    Stream(u64, Request<Bytes>, Option<Option<u64>>, Option<Time>),
    Give(u64, Bytes),
    GiveEnd(u64),
    FailUpload(u64, ErrorDetail),
    Taken(u64, usize),
    Cancel(u64),
}

enum BoardPlace {
    Free,
    /// A caller waits for it.
    Waiting(Waker),
    /// It has ended, and the caller has not looked yet.
    Ended(CallResult),
    /// It belongs to a stream, as its n-th.
    Grouped(usize, u64),
    /// Its bodies are streams.
    Streamed(Arc<StreamCell>),
}

struct CallPlace {
    generation: u32,
    place: BoardPlace,
}

/// The calls of one stream.
#[derive(Default)]
struct CallGroup {
    /// Those that have ended, each with its index.
    ended: Vec<(u64, CallResult)>,
    waker: Option<Waker>,
}

/// The shared part of a client.
pub(super) struct Board {
    calls: Vec<CallPlace>,
    free: Vec<u32>,
    groups: Vec<Option<CallGroup>>,
    commands: Vec<Command>,
    /// The driver, while it sleeps.
    driver: Option<Waker>,
    /// The driver is to look, though nobody wants anything of it.
    poked: bool,
    /// No client is left: the driver ends.
    pub(super) abandoned: bool,
    /// The driver has ended.
    ended: bool,
    pub(super) statistics: Statistics,
}

impl Board {
    fn insert(&mut self, request: Request<Bytes>, since: Option<Time>, place: BoardPlace) -> u64 {
        let id = self.place(place);
        self.commands.push(Command::Submit(id, request, since));
        id
    }

    fn place(&mut self, place: BoardPlace) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.calls.push(CallPlace { generation: 0, place: BoardPlace::Free });
            self.calls.len() as u32 - 1
        });
        let call = &mut self.calls[slot as usize];
        call.generation = call.generation.wrapping_add(1);
        call.place = place;
        u64::from(call.generation) << 32 | u64::from(slot)
    }

    fn get(&mut self, id: u64) -> Option<&mut CallPlace> {
        self.calls.get_mut(id as u32 as usize).filter(|call| u64::from(call.generation) == id >> 32)
    }

    fn release(&mut self, id: u64) {
        if let Some(call) = self.get(id) {
            call.place = BoardPlace::Free;
            self.free.push(id as u32);
        }
    }

    /// Takes the wakers of those whose calls have ended; returns how many places became free.
    fn deliver(&mut self, done: &mut Vec<Done>, wakers: &mut Vec<Waker>) -> usize {
        let mut released = 0;
        for Done { id, result } in done.drain(..) {
            let Some(call) = self.get(id) else { continue };
            match std::mem::replace(&mut call.place, BoardPlace::Free) {
                // It was abandoned meanwhile.
                BoardPlace::Free => {}
                BoardPlace::Waiting(waker) => {
                    call.place = BoardPlace::Ended(result);
                    wakers.push(waker);
                }
                BoardPlace::Ended(first) => call.place = BoardPlace::Ended(first),
                BoardPlace::Streamed(cell) => {
                    self.free.push(id as u32);
                    released += 1;
                    wakers.extend(cell.end(result).into_iter().flatten());
                }
                BoardPlace::Grouped(group, index) => {
                    self.free.push(id as u32);
                    released += 1;
                    if let Some(Some(group)) = self.groups.get_mut(group) {
                        group.ended.push((index, result));
                        wakers.extend(group.waker.take());
                    }
                }
            }
        }
        released
    }

    /// The driver has ended: so have all calls.
    fn end(&mut self, wakers: &mut Vec<Waker>) {
        self.ended = true;
        self.driver = None;
        self.commands.clear();
        let waits = |call: &CallPlace| {
            matches!(call.place, BoardPlace::Waiting(_) | BoardPlace::Grouped(..) | BoardPlace::Streamed(_))
        };
        let ids = self.calls.iter().enumerate().filter(|(_, call)| waits(call));
        let id = |(slot, call): (usize, &CallPlace)| u64::from(call.generation) << 32 | slot as u64;
        let mut done: Vec<Done> =
            ids.map(|place| Done { id: id(place), result: Err(Error::Closed) }).collect();
        self.deliver(&mut done, wakers);
    }
}

/// The driver is to look at the limit that it shares with others.
impl Wake for SharedBoard {
    fn wake(self: Arc<Self>) {
        let mut board = self.lock();
        board.poked = true;
        let driver = board.driver.take();
        drop(board);
        driver.into_iter().for_each(Waker::wake);
    }
}

/// The board, and the places on it.
pub(super) struct SharedBoard {
    board: Mutex<Board>,
    /// Places for calls, handed out in the order they were asked for.
    pub(super) places: Arc<Semaphore>,
}

impl SharedBoard {
    pub(super) fn new(places: usize) -> SharedBoard {
        let board = Board {
            calls: Vec::new(),
            free: Vec::new(),
            groups: Vec::new(),
            commands: Vec::new(),
            driver: None,
            poked: false,
            abandoned: false,
            ended: false,
            statistics: Statistics::default(),
        };
        SharedBoard { board: Mutex::new(board), places: Arc::new(Semaphore::new(places)) }
    }

    /// A panic of another thread while it held the lock leaves the board usable: each change is whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A caller hands a call over, for which it has a place. `since`: when it began to wait for that.
    pub(super) fn submit(
        &self,
        request: Request<Bytes>,
        since: Option<Time>,
        waker: &Waker,
    ) -> Result<u64, Error> {
        let mut board = self.lock();
        if board.ended {
            return Err(Error::Closed);
        }
        let id = board.insert(request, since, BoardPlace::Waiting(waker.clone()));
        let driver = board.driver.take();
        drop(board);
        driver.into_iter().for_each(Waker::wake);
        Ok(id)
    }

    /// As [`submit`](SharedBoard::submit), for a call whose bodies are streams.
    pub(super) fn submit_streaming(
        &self,
        request: Request<Bytes>,
        upload: Option<Option<u64>>,
        since: Option<Time>,
        cell: Arc<StreamCell>,
    ) -> Result<u64, Error> {
        let mut board = self.lock();
        if board.ended {
            return Err(Error::Closed);
        }
        let id = board.place(BoardPlace::Streamed(cell));
        board.commands.push(Command::Stream(id, request, upload, since));
        let driver = board.driver.take();
        drop(board);
        driver.into_iter().for_each(Waker::wake);
        Ok(id)
    }

    /// A caller wants something of the driver.
    pub(super) fn command(&self, command: Command) {
        let mut board = self.lock();
        if board.ended {
            return;
        }
        board.commands.push(command);
        let driver = board.driver.take();
        drop(board);
        driver.into_iter().for_each(Waker::wake);
    }

    /// How a call ended; `None`: not yet, and the waker is kept.
    pub(super) fn take(&self, id: u64, waker: &Waker) -> Option<CallResult> {
        let mut board = self.lock();
        let call = board.get(id)?;
        match &mut call.place {
            BoardPlace::Ended(_) => {}
            BoardPlace::Waiting(known) => {
                if !known.will_wake(waker) {
                    known.clone_from(waker);
                }
                return None;
            }
            BoardPlace::Free | BoardPlace::Grouped(..) | BoardPlace::Streamed(_) => return None,
        }
        let place = std::mem::replace(&mut call.place, BoardPlace::Free);
        board.release(id);
        drop(board);
        self.places.add_permits(1);
        if let BoardPlace::Ended(result) = place { Some(result) } else { None }
    }

    /// Abandons a call: its caller does not wait any more.
    pub(super) fn give_up(&self, id: u64) {
        let mut board = self.lock();
        let Some(call) = board.get(id) else { return };
        let waits = matches!(call.place, BoardPlace::Waiting(_) | BoardPlace::Streamed(_));
        if matches!(call.place, BoardPlace::Free) {
            // The call of a stream has ended.
            return;
        }
        // Its contents are dropped after the lock.
        let place = std::mem::replace(&mut call.place, BoardPlace::Free);
        board.release(id);
        if waits && !board.ended {
            board.commands.push(Command::Cancel(id));
        }
        let driver = board.driver.take();
        drop(board);
        let writer = if let BoardPlace::Streamed(cell) = &place { cell.abandon() } else { None };
        writer.into_iter().for_each(Waker::wake);
        drop(place);
        self.places.add_permits(1);
        driver.into_iter().for_each(Waker::wake);
    }

    pub(super) fn new_group(&self) -> usize {
        let mut board = self.lock();
        let free = board.groups.iter().position(Option::is_none);
        let at = free.unwrap_or(board.groups.len());
        if at == board.groups.len() {
            board.groups.push(None);
        }
        board.groups[at] = Some(CallGroup::default());
        at
    }

    /// Hands calls of a group over, numbered from `first`, for which there are places; takes those that have ended.
    /// `waker` is kept if there are none.
    pub(super) fn exchange(
        &self,
        group: usize,
        (first, requests): (u64, &mut Vec<Request<Bytes>>),
        ended: &mut Vec<(u64, CallResult)>,
        waker: &Waker,
    ) {
        let mut board = self.lock();
        if board.ended {
            let closed = requests.drain(..).enumerate();
            ended.extend(closed.map(|(n, _)| (first + n as u64, Err(Error::Closed))));
        }
        let submits = !requests.is_empty();
        for (n, request) in requests.drain(..).enumerate() {
            board.insert(request, None, BoardPlace::Grouped(group, first + n as u64));
        }
        if let Some(Some(group)) = board.groups.get_mut(group) {
            ended.append(&mut group.ended);
            if ended.is_empty() {
                group.waker = Some(waker.clone());
            }
        }
        let driver = if submits { board.driver.take() } else { None };
        drop(board);
        driver.into_iter().for_each(Waker::wake);
    }

    /// Gives up what is left of a group.
    pub(super) fn drop_group(&self, group: usize) {
        let mut board = self.lock();
        let dropped = board.groups.get_mut(group).and_then(Option::take);
        let mut released = 0;
        for slot in 0..board.calls.len() {
            let call = &mut board.calls[slot];
            if matches!(call.place, BoardPlace::Grouped(of, _) if of == group) {
                call.place = BoardPlace::Free;
                let id = u64::from(call.generation) << 32 | slot as u64;
                board.free.push(slot as u32);
                board.commands.push(Command::Cancel(id));
                released += 1;
            }
        }
        let driver = board.driver.take();
        drop(board);
        drop(dropped);
        self.places.add_permits(released);
        driver.into_iter().for_each(Waker::wake);
    }

    /// The driver takes what callers want; `false`: no client is left.
    pub(super) fn take_commands(&self, commands: &mut Vec<Command>) -> bool {
        let mut board = self.lock();
        std::mem::swap(&mut board.commands, commands);
        !board.abandoned
    }

    /// The driver delivers what happened to calls whose bodies are streams.
    pub(super) fn deliver_news(&self, news: &mut Vec<News>, wakers: &mut Vec<Waker>) {
        if news.is_empty() {
            return;
        }
        let mut board = self.lock();
        for news in news.drain(..) {
            let (News::Head(id, _) | News::Piece(id, _) | News::Left(id, _)) = news;
            if let Some(CallPlace { place: BoardPlace::Streamed(cell), .. }) = board.get(id) {
                wakers.extend(cell.tell(news));
            }
        }
        drop(board);
        wakers.drain(..).for_each(Waker::wake);
    }

    /// The driver delivers what has ended.
    pub(super) fn deliver(&self, done: &mut Vec<Done>, wakers: &mut Vec<Waker>) {
        if done.is_empty() {
            return;
        }
        let released = self.lock().deliver(done, wakers);
        if released > 0 {
            self.places.add_permits(released);
        }
        wakers.drain(..).for_each(Waker::wake);
    }

    /// The driver sleeps, unless somebody wants something; says whether it may.
    pub(super) fn sleep(&self, waker: &Waker, publish: impl FnOnce(&mut Statistics)) -> bool {
        let mut board = self.lock();
        publish(&mut board.statistics);
        let may = board.commands.is_empty() && !board.abandoned && !std::mem::take(&mut board.poked);
        board.driver = may.then(|| waker.clone());
        may
    }

    /// The driver writes its counts.
    pub(super) fn publish(&self, publish: impl FnOnce(&mut Statistics)) {
        publish(&mut self.lock().statistics);
    }

    /// No client is left.
    pub(super) fn abandon(&self) {
        let mut board = self.lock();
        board.abandoned = true;
        let driver = board.driver.take();
        drop(board);
        driver.into_iter().for_each(Waker::wake);
    }

    /// The driver has ended.
    pub(super) fn end(&self) {
        let mut wakers = Vec::new();
        self.lock().end(&mut wakers);
        self.places.close();
        wakers.into_iter().for_each(Waker::wake);
    }
}
