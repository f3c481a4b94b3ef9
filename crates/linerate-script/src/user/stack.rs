//! A stack of its own for a function that may rest at any depth.
//!
//! The scoped functions of the crate `generator` hand their handle to the one function that they run. A call out of
//! JavaScript cannot reach it there, so this uses those that find the running stack by themselves.

use std::cell::RefCell;

use generator::{Generator, Gn};

/// What a stack runs.
type StackBody = Box<dyn FnOnce()>;

thread_local! {
    /// The body of the stack that begins. It need not be sendable between threads this way, and never is sent.
    static BEGINS: RefCell<Option<StackBody>> = const { RefCell::new(None) };
}

/// A stack. It stays in its thread.
pub(super) struct OwnStack {
    generator: Generator<'static, (), ()>,
    /// What it runs is not sendable.
    _stays: std::marker::PhantomData<*const ()>,
}

impl OwnStack {
    /// Runs `body` on a stack of this size, up to where it rests first.
    #[allow(deprecated, reason = "see above")]
    pub(super) fn begin(bytes: usize, body: StackBody) -> OwnStack {
        let words = bytes / size_of::<usize>();
        let generator = Gn::<()>::new_opt(words, || {
            if let Some(body) = BEGINS.take() {
                body();
            }
        });
        let mut stack = OwnStack { generator, _stays: std::marker::PhantomData };
        BEGINS.set(Some(body));
        stack.go_on();
        stack
    }

    /// Goes on, up to where it rests next, or to its end.
    pub(super) fn go_on(&mut self) {
        self.generator.resume();
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.generator.is_done()
    }
}

/// On a stack of its own: rests until it is to go on.
#[expect(deprecated, reason = "see above")]
pub(super) fn rest() {
    generator::yield_with(());
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn stacks_take_turns() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut stacks: Vec<_> = (0..3)
            .map(|n| {
                let seen = Rc::clone(&seen);
                let body = move || {
                    for turn in 0..3 {
                        seen.borrow_mut().push((turn, n));
                        rest();
                    }
                };
                OwnStack::begin(64 << 10, Box::new(body))
            })
            .collect();
        for _ in 0..3 {
            stacks.iter_mut().for_each(OwnStack::go_on);
        }
        assert!(stacks.iter().all(OwnStack::has_ended));
        let wanted: Vec<_> = (0..3).flat_map(|turn| (0..3).map(move |n| (turn, n))).collect();
        assert_eq!(*seen.borrow(), wanted);
    }
}
