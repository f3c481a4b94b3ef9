//! A service as one writes it for tonic: nothing in this file knows which server runs it.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tonic::{Request, Response, Status, Streaming};

use crate::helloworld::greeter_server::Greeter;
use crate::helloworld::{HelloReply, HelloRequest, Number};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The largest number that `Count` reaches; a client that asks for more gets an error behind it.
pub(crate) const MOST: u64 = 1000;

#[derive(Debug, Default)]
pub(crate) struct MyGreeter;

fn greeting(request: &HelloRequest) -> Result<HelloReply, Status> {
    match request.name.as_str() {
        "" => Err(Status::invalid_argument("the name is empty")),
        name => Ok(HelloReply { message: format!("Hello {name}!") }),
    }
}

#[tonic::async_trait]
impl Greeter for MyGreeter {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        greeting(request.get_ref()).map(Response::new)
    }

    type CountStream = Answers<Number>;

    /// Counts up to the number, and sleeps for a millisecond after each hundred. 0: until the client
    /// has enough.
    async fn count(&self, request: Request<Number>) -> Result<Response<Self::CountStream>, Status> {
        let asked = request.get_ref().value;
        let last = if asked == 0 { u64::MAX } else { asked };
        let numbers = stream::iter(1..=last).then(move |value| async move {
            if asked != 0 && value > MOST {
                return Err(Status::out_of_range(format!("it counts to {MOST}")));
            }
            if value % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(Number { value })
        });
        Ok(Response::new(Box::pin(numbers)))
    }

    async fn sum(&self, request: Request<Streaming<Number>>) -> Result<Response<Number>, Status> {
        let mut numbers = request.into_inner();
        let mut sum = 0u64;
        while let Some(number) = numbers.message().await? {
            sum =
                sum.checked_add(number.value).ok_or_else(|| Status::out_of_range("the sum is too large"))?;
        }
        Ok(Response::new(Number { value: sum }))
    }

    type ChatStream = Answers<HelloReply>;

    /// Answers each message as soon as it is there.
    async fn chat(
        &self,
        request: Request<Streaming<HelloRequest>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        let replies = request.into_inner().map(|name| greeting(&name?));
        Ok(Response::new(Box::pin(replies)))
    }
}
