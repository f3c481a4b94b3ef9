//! What `linerate serve` answers: files where there are some, the built-in routes else.

use linerate_http::server::Method;

use crate::files::{FileRoot, Files};
use crate::routes::Routes;
use crate::{Request, Response};

/// Files and built-in routes together; can be sent to the threads that will each make a [`Site`] of it.
#[derive(Clone)]
pub struct SitePlan {
    routes: Routes,
    root: Option<FileRoot>,
}

impl SitePlan {
    /// `root`: the directory whose files come first.
    pub fn new(routes: Routes, root: Option<FileRoot>) -> SitePlan {
        SitePlan { routes, root }
    }

    /// For one thread.
    pub fn site(&self) -> Site {
        Site { routes: self.routes.clone(), files: self.root.as_ref().map(FileRoot::files) }
    }
}

/// One thread's.
#[derive(Clone)]
pub struct Site {
    routes: Routes,
    files: Option<Files>,
}

impl Site {
    /// Answers.
    pub async fn answer(self, request: Request) -> Response {
        let reads = matches!(request.method(), Method::Get | Method::Head);
        let Some(files) = self.files.filter(|_| reads) else { return self.routes.answer(request).await };
        // A file's name may be a route's too: the file is what was put there.
        if request.path() != "/" && Routes::knows(request.path()) && !files.has(&request) {
            return self.routes.answer(request).await;
        }
        files.answer(request).await
    }
}
