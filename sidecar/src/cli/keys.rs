//! `keys create | list | revoke`: works on the database directly, whether or not a sidecar runs.

use std::io::{self, Write};
use std::time::Duration;

use clap::Subcommand;
use decision::identity::DEFAULT;
use jiff::Timestamp;

use super::CommandError;
use crate::app::{self, AppError, Parts};
use crate::config::Config;
use crate::keys::{self, KeyError, KeyRequest};
use crate::repository::{KeyRecord, Repository, RepositoryError};

const DAY_S: u64 = 86_400;
/// Longest life of a key that can be asked for: a hundred years.
const LIFE_MAX_S: u64 = 36_525 * DAY_S;

#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Make a key. Its text goes to standard output, once.
    Create {
        /// What to call it.
        #[arg(long, default_value = "")]
        name: String,
        /// Whom it names; made if new.
        #[arg(long, default_value = DEFAULT)]
        user: String,
        /// Where it belongs.
        #[arg(long, default_value = DEFAULT)]
        workspace: String,
        /// Make the workspace if it is new.
        #[arg(long)]
        create_workspace: bool,
        /// How long it works, as in 90d, 12h, 30m or 45s. Without it: until it is revoked.
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires_in: Option<Duration>,
    },
    /// List the keys, oldest first.
    List,
    /// Stop a key from working.
    Revoke {
        /// Its id, as `list` shows it.
        id: String,
    },
}

/// Does what was asked.
pub(super) async fn run(command: KeysCommand, config: &Config, parts: &Parts) -> Result<(), CommandError> {
    let repository = app::open_repository(config, parts).await?;
    let done = act(command, &repository, parts).await;
    repository.close().await;
    done
}

async fn act(command: KeysCommand, repository: &Repository, parts: &Parts) -> Result<(), CommandError> {
    match command {
        KeysCommand::Create { name, user, workspace, create_workspace, expires_in } => {
            let life_ms = expires_in.map(|life| i64::try_from(life.as_millis()).unwrap_or(i64::MAX));
            let request = KeyRequest {
                name,
                user_id: user,
                workspace_id: workspace,
                create_workspace,
                expires_at_ms: life_ms.map(|life| parts.clock.now_ms().saturating_add(life)),
            };
            let key = keys::create(repository, &*parts.ids, request).await.map_err(key_error)?;
            writeln!(io::stderr(), "{} is made; its text is shown this once:", key.id)?;
            writeln!(io::stdout(), "{}", key.text.expose())?;
        }
        KeysCommand::List => {
            let mut out = io::stdout().lock();
            writeln!(out, "id\tname\tuser\tworkspace\tcreated\texpires\trevoked")?;
            for key in repository.keys().await.map_err(repository_error)? {
                writeln!(out, "{}", line(&key))?;
            }
        }
        KeysCommand::Revoke { id } => {
            if !repository.revoke_key(&id).await.map_err(repository_error)? {
                let text = format!("there is no key `{id}`: `otari-sidecar keys list` shows the ids");
                return Err(CommandError::Refused(text));
            }
            writeln!(io::stdout(), "{id} is revoked")?;
        }
    }
    Ok(())
}

fn line(key: &KeyRecord) -> String {
    let time = |at: Option<i64>| {
        at.and_then(|at| Timestamp::from_millisecond(at).ok()).map_or_else(|| "-".to_owned(), |at| at.to_string())
    };
    let times = [Some(key.created_at_ms), key.expires_at_ms, key.revoked_at_ms].map(time).join("\t");
    format!("{}\t{}\t{}\t{}\t{times}", key.id, key.name, key.user_id, key.workspace_id)
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and one of s, m, h, d, as in 90d; at most 36525d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => DAY_S,
        _ => return Err(wrong()),
    };
    let count: u64 = text.trim_end_matches(unit).parse().map_err(|_| wrong())?;
    let life = count.checked_mul(seconds).filter(|life| (1..=LIFE_MAX_S).contains(life)).ok_or_else(wrong)?;
    Ok(Duration::from_secs(life))
}

fn key_error(error: KeyError) -> CommandError {
    match error {
        KeyError::UnknownWorkspace(_) => CommandError::Refused(error.to_string()),
        error => AppError::Keys(error).into(),
    }
}

fn repository_error(error: RepositoryError) -> CommandError {
    AppError::Repository(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_a_unit_and_bounds() {
        assert_eq!(lifetime("90d"), Ok(Duration::from_secs(90 * DAY_S)));
        assert_eq!(lifetime("45s"), Ok(Duration::from_secs(45)));
        for wrong in ["", "90", "d", "-1d", "0s", "1y", "36526d", "1.5h", "99999999999999999999d"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }
}
