//! What can go wrong in the database; who asked for what is the caller's to say.

/// A failure of the database, or of what stands in it.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// The driver or the database failed.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    /// The database's file cannot be made, or not be closed to others.
    #[error("the database's file cannot be used")]
    File(#[source] std::io::Error),
    /// The schema could not be brought up to date.
    #[error("the database's schema could not be brought up to date")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// A row holds what this version never writes.
    #[error("row `{id}` of {table} has a bad {column}")]
    Corrupt {
        /// Table of the row.
        table: &'static str,
        /// Column at fault.
        column: &'static str,
        /// Primary key of the row.
        id: String,
    },
}
