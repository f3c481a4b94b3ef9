//! A page of the book, and where links that leave the book lead.

/// Where the repository's files are, for links that leave the book.
pub(super) const REPOSITORY: &str = "https://github.com/linerate/linerate/blob/main";

/// A page of the book.
pub(crate) struct BookPage {
    /// Relative to the root, as in the repository.
    pub(super) path: String,
    pub(super) text: String,
}
