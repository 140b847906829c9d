//! Otari keys: how they look, how they are hashed, where the first one comes from.
//!
//! INVARIANT: the text of a key is shown once, to whoever made it, and is never stored but in the bootstrap-key file.

use std::io;
use std::path::{Path, PathBuf};

use decision::identity::{DEFAULT, key_hash};

use crate::config::Secret;
use crate::ids::IdSource;
use crate::private;
use crate::repository::{NewKey, Repository, RepositoryError};

/// Every key text starts so.
pub const PREFIX: &str = decision::identity::KEY_PREFIX;
/// The row of the bootstrap key that was made here.
const BOOTSTRAP_ID: &str = "key_bootstrap";
/// The row of the one that the environment gives.
const GIVEN_BOOTSTRAP_ID: &str = "key_bootstrap_given";
/// Longest secret file that is read.
const SECRET_FILE_MAX_BYTES: u64 = 4096;

/// A key was not made or found.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The workspace is unknown.
    #[error("there is no workspace `{0}`: name one that exists, or add --create-workspace")]
    UnknownWorkspace(String),
    /// A secret's file cannot be read or written.
    #[error("the secret in {path} cannot be used", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The database failed.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

/// A key just made.
#[derive(Debug)]
pub struct CreatedKey {
    /// Public id.
    pub id: String,
    /// The text, to be shown once.
    pub text: Secret,
}

/// What a new key is to be.
#[derive(Debug, Clone)]
pub struct KeyRequest {
    /// What a person calls it.
    pub name: String,
    /// Whom it names; made if new.
    pub user_id: String,
    /// Where it belongs.
    pub workspace_id: String,
    /// Makes the workspace if it is new: a typing error must not make one, for it would have no policy.
    pub create_workspace: bool,
    /// When it stops working, milliseconds since the epoch.
    pub expires_at_ms: Option<i64>,
}

/// Makes a key.
pub async fn create(repository: &Repository, ids: &dyn IdSource, request: KeyRequest) -> Result<CreatedKey, KeyError> {
    if request.create_workspace {
        repository.create_workspace(&request.workspace_id).await?;
    } else if repository.workspace(&request.workspace_id).await?.is_none() {
        return Err(KeyError::UnknownWorkspace(request.workspace_id));
    }
    repository.ensure_user(&request.user_id).await?;
    let text = new_text(ids);
    let key = NewKey {
        id: ids.mint("key_"),
        name: request.name,
        user_id: request.user_id,
        workspace_id: request.workspace_id,
        sha256: key_hash(text.expose().as_bytes()),
        expires_at_ms: request.expires_at_ms,
    };
    repository.insert_key(&key).await?;
    Ok(CreatedKey { id: key.id, text })
}

/// Makes sure that there is a first key: the given one, or the one in `file`, which is made if it is missing. Each has a
/// row of its own, so that neither takes the other's place: a given key gives way to another given one alone, one made
/// here to a newly made one (its file was removed), and whatever was revoked stays so. In a database that other sidecars
/// share, the first of them makes it: one that comes later and has no file of it gets none.
pub async fn ensure_bootstrap(
    repository: &Repository,
    ids: &dyn IdSource,
    given: Option<&Secret>,
    file: &Path,
) -> Result<(), KeyError> {
    let made = !file.exists();
    let (id, text) = match given {
        Some(secret) => (GIVEN_BOOTSTRAP_ID, secret.clone()),
        None => (BOOTSTRAP_ID, secret_file(file, || new_text(ids))?),
    };
    let key = NewKey {
        id: id.to_owned(),
        name: "bootstrap".to_owned(),
        user_id: DEFAULT.to_owned(),
        workspace_id: DEFAULT.to_owned(),
        sha256: key_hash(text.expose().as_bytes()),
        expires_at_ms: None,
    };
    if given.is_some() || !repository.is_shared() {
        return Ok(repository.put_key(&key).await?);
    }
    if !repository.offer_key(&key).await? && made {
        tracing::info!("another sidecar of this database has made the first key, and has it in its data_dir");
        std::fs::remove_file(file).map_err(|source| KeyError::File { path: file.to_owned(), source })?;
    }
    Ok(())
}

/// Makes the default user and workspace.
pub async fn ensure_default_owner(repository: &Repository) -> Result<(), RepositoryError> {
    repository.ensure_user(DEFAULT).await?;
    repository.create_workspace(DEFAULT).await?;
    Ok(())
}

/// The secret kept in a file of mode 0600, made and written if the file is missing.
pub fn secret_file(path: &Path, make: impl FnOnce() -> Secret) -> Result<Secret, KeyError> {
    read_or_create(path, make).map_err(|source| KeyError::File { path: path.to_owned(), source })
}

fn read_or_create(path: &Path, make: impl FnOnce() -> Secret) -> io::Result<Secret> {
    match read_secret(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let secret = make();
    match private::create(path, format!("{}\n", secret.expose()).as_bytes()) {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read_secret(path),
        Err(error) => Err(error),
    }
}

fn read_secret(path: &Path) -> io::Result<Secret> {
    if std::fs::metadata(path)?.len() > SECRET_FILE_MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long to be a secret"));
    }
    // The folder lets others pass.
    private::close(path)?;
    match std::fs::read_to_string(path)?.trim() {
        "" => Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty; remove it to get a new one")),
        text => Ok(Secret::new(text)),
    }
}

fn new_text(ids: &dyn IdSource) -> Secret {
    Secret::new(ids.mint(PREFIX))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::clock::TurnedClock;
    use crate::ids::SystemIds;
    use crate::repository::testing::{Kind, TestDatabase};

    #[test]
    fn a_secret_is_made_once_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hop-secret");
        let first = secret_file(&path, || Secret::new(SystemIds.hex128())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let second = secret_file(&path, || Secret::new(SystemIds.hex128())).unwrap();
        assert_eq!(first.expose(), second.expose());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn of_sidecars_that_share_a_database_the_first_makes_the_first_key() {
        let (database, clock) = (TestDatabase::new(Kind::Postgres), TurnedClock::at(1_000));
        let (repository, folder) = (database.open(&clock).await, tempfile::tempdir().unwrap());
        ensure_default_owner(&repository).await.unwrap();
        let files = ["one", "two"].map(|name| folder.path().join(name));
        for file in [&files[0], &files[1], &files[0], &files[1]] {
            ensure_bootstrap(&repository, &SystemIds, None, file).await.unwrap();
        }
        let text = std::fs::read_to_string(&files[0]).unwrap();
        let keys = repository.working_keys().await.unwrap();
        assert_eq!(keys.iter().map(|key| key.sha256.as_str()).collect::<Vec<_>>(), [key_hash(text.trim().as_bytes())]);
        assert!(!files[1].exists(), "a key that does not work is not left lying about");
    }

    #[test]
    fn an_empty_secret_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hop-secret");
        std::fs::write(&path, " \n").unwrap();
        assert!(secret_file(&path, || Secret::new("unused")).is_err());
    }
}
