//! The responses of one connection in the order of their requests, and how many bytes of them are ready.

use std::collections::VecDeque;

use crate::answer::{Asked, OrderedResponse};
use crate::limits::FILES_OPEN;
use crate::message::file_body::FileBody;

/// The queue keeps its own sum. Only the response at the front changes while it waits here, so its bytes are asked for and only
/// those behind it are summed: code that sends may return anywhere without leaving a wrong sum.
#[derive(Debug, Default)]
pub(crate) struct AnswerQueue {
    answers: VecDeque<OrderedResponse>,
    /// Ready bytes behind the front.
    behind: usize,
}

impl AnswerQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    /// How many it has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.answers.capacity()
    }

    /// Bytes that are ready and not handed over yet.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.answers.front().map_or(0, OrderedResponse::ready_bytes) + self.behind
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut OrderedResponse> {
        self.answers.front_mut()
    }

    pub(crate) fn front(&self) -> Option<&OrderedResponse> {
        self.answers.front()
    }

    pub(crate) fn back(&self) -> Option<&OrderedResponse> {
        self.answers.back()
    }

    /// The place of a handler that waits.
    pub(crate) fn waiting(&self, task: u32) -> Option<usize> {
        self.answers.iter().position(|a| matches!(a, OrderedResponse::Waiting { task: t, .. } if *t == task))
    }

    /// The requests whose handlers wait, in their order.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &Asked> {
        self.answers.iter().filter_map(|answer| match answer {
            OrderedResponse::Waiting { asked, .. } => Some(asked),
            _ => None,
        })
    }

    pub(crate) fn get(&self, place: usize) -> Option<&OrderedResponse> {
        self.answers.get(place)
    }

    pub(crate) fn push_back(&mut self, answer: OrderedResponse) {
        if !self.answers.is_empty() {
            self.behind += answer.ready_bytes();
        }
        self.answers.push_back(answer);
    }

    pub(crate) fn pop_front(&mut self) -> Option<OrderedResponse> {
        let front = self.answers.pop_front();
        self.behind -= self.answers.front().map_or(0, OrderedResponse::ready_bytes);
        front
    }

    pub(crate) fn pop_back(&mut self) -> Option<OrderedResponse> {
        let back = self.answers.pop_back()?;
        if !self.answers.is_empty() {
            self.behind -= back.ready_bytes();
        }
        Some(back)
    }

    /// Takes out those from `place` on.
    pub(crate) fn split_off(&mut self, place: usize) -> AnswerQueue {
        let answers = self.answers.split_off(place);
        let all: usize = answers.iter().map(OrderedResponse::ready_bytes).sum();
        let behind = all - answers.front().map_or(0, OrderedResponse::ready_bytes);
        self.behind = if place == 0 { 0 } else { self.behind - all };
        AnswerQueue { answers, behind }
    }

    /// Puts others behind them.
    pub(crate) fn append(&mut self, mut others: AnswerQueue) {
        if self.answers.is_empty() {
            self.behind = others.behind;
        } else {
            self.behind += others.ready_bytes();
        }
        self.answers.append(&mut others.answers);
    }

    /// Closes files beyond those that a connection may have open, until it is their turn. Handlers that wait may
    /// respond with more of them.
    pub(crate) fn close_files(&mut self) {
        if self.answers.len() <= FILES_OPEN {
            return;
        }
        let files = self.answers.iter_mut().filter_map(|answer| match answer {
            OrderedResponse::File { body, .. } if body.is_open() => Some(body),
            _ => None,
        });
        files.skip(FILES_OPEN).for_each(FileBody::close);
    }

    /// None, and the capacity.
    pub(crate) fn into_empty(self) -> AnswerQueue {
        let mut answers = self.answers;
        answers.clear();
        AnswerQueue { answers, ..AnswerQueue::default() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(bytes: usize) -> OrderedResponse {
        OrderedResponse::Bytes { bytes: vec![0; bytes], last: false }
    }

    proptest! {
        /// Whatever is done, and however the front changes meanwhile.
        #[test]
        fn the_sum_is_that_of_the_answers(steps in proptest::collection::vec((0u8..6, 0usize..500), 1..200)) {
            let mut queue = AnswerQueue::default();
            for (what, n) in steps {
                match what {
                    0 | 1 => queue.push_back(answer(n)),
                    2 => drop(queue.pop_front()),
                    3 => drop(queue.pop_back()),
                    4 => if let Some(OrderedResponse::Bytes { bytes, .. }) = queue.front_mut() {
                        bytes.truncate(n);
                    },
                    _ => {
                        let mut behind = queue.split_off(n % (queue.len() + 1));
                        drop(behind.pop_front());
                        queue.push_back(answer(n));
                        queue.append(behind);
                    }
                }
                prop_assert_eq!(queue.ready_bytes(), queue.answers.iter().map(OrderedResponse::ready_bytes).sum::<usize>());
            }
        }
    }
}
