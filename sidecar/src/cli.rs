//! The command line: which command, which config file, what it prints and how it ends.
//!
//! INVARIANT: answers go to standard output and nothing else does; a failure is one clear text on standard error.

mod health;
mod keys;
mod sweep;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{self, App, AppError, Parts, SandboxDaemon};
use crate::clock::SystemClock;
use crate::config::{Config, ConfigProblem, Environment};
use crate::envoy_config::{self, RenderError, Surroundings};
use crate::extract;
use crate::ids::SystemIds;
use crate::private;
use crate::telemetry;

/// The native side of otari-envoy.
#[derive(Debug, Parser)]
#[command(name = "otari-sidecar", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve Envoy until SIGTERM or SIGINT.
    Serve(ConfigFile),
    /// Serve the embedded sandbox alone, by contract v1 on `sandbox.serve`, until SIGTERM or SIGINT.
    Sandboxd(ConfigFile),
    /// Print Envoy's configuration, or write it to a file.
    EnvoyConfig {
        #[command(flatten)]
        file: ConfigFile,
        /// The built filter.
        #[arg(long, value_name = "PATH", default_value = "filter.wasm")]
        filter: PathBuf,
        /// Only the filter's plugin configuration, for an Envoy that is not ours: JSON.
        #[arg(long, conflicts_with = "filter")]
        plugin_config: bool,
        /// Write it to this file, mode 0600, for it holds the hop secret.
        #[arg(long, value_name = "PATH")]
        output: Option<PathBuf>,
    },
    /// Say everything that is wrong with the config file.
    CheckConfig(ConfigFile),
    /// Make, list and revoke keys.
    Keys {
        #[command(flatten)]
        file: ConfigFile,
        #[command(subcommand)]
        command: keys::KeysCommand,
    },
    /// Bring the database's schema up to date. `serve` does so too.
    Migrate(ConfigFile),
    /// Remove files that are deleted, expired or were left half-way, now. `serve` does so by itself.
    Sweep {
        #[command(flatten)]
        file: ConfigFile,
        /// Only say what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Ask a running sidecar whether it is ready.
    Health(ConfigFile),
    /// What this program starts by itself to read a document: standard input to standard output, in a jail.
    #[command(name = extract::COMMAND, hide = true)]
    ExtractText {
        /// What the document is.
        kind: extract::Document,
        /// Processor time it may take.
        #[arg(long)]
        cpu_seconds: u64,
    },
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The config file.
    #[arg(long, value_name = "FILE", default_value = "otari.yaml", global = true)]
    config: PathBuf,
}

/// A command that did not do what it was asked.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("the configuration has {} problem(s):{}", .0.len(), list(.0))]
    Config(Vec<ConfigProblem>),
    #[error(transparent)]
    App(#[from] AppError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("{0}")]
    Refused(String),
    #[error("the answer could not be written")]
    Output(#[from] io::Error),
}

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            // Help goes to standard output, mistakes to standard error; a closed pipe is nobody's loss.
            usage.print().ok();
            return if usage.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    // Before any thread is started, for it locks up this one alone.
    if let Command::ExtractText { kind, cpu_seconds } = cli.command {
        return extract::run_child(kind, cpu_seconds);
    }
    match run(cli.command, &Environment::of_process()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "otari-sidecar: {}", telemetry::chain(&error)).ok();
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, env: &Environment) -> Result<(), CommandError> {
    let program = PathBuf::from(extract::THIS_PROGRAM);
    let parts = Parts { clock: Arc::new(SystemClock), ids: Arc::new(SystemIds), program };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Serve(file) => serve(&load(&file, env)?, parts).await,
            Command::Sandboxd(file) => sandboxd(&load(&file, env)?, parts).await,
            Command::EnvoyConfig { file, filter, plugin_config: plugin_only, output } => {
                let config = load(&file, env)?;
                let text =
                    if plugin_only { plugin_config(&config, &parts) } else { envoy_config(&config, &filter, &parts) }?;
                match output {
                    Some(path) => Ok(private::replace(&path, text.as_bytes())?),
                    None => Ok(io::stdout().write_all(text.as_bytes())?),
                }
            }
            Command::CheckConfig(file) => {
                for warning in load(&file, env)?.warnings {
                    writeln!(io::stderr(), "otari-sidecar: warning: {warning}")?;
                }
                Ok(writeln!(io::stdout(), "{} is good", file.config.display())?)
            }
            Command::Keys { file, command } => keys::run(command, &load(&file, env)?, &parts).await,
            Command::Migrate(file) => {
                app::open_repository(&load(&file, env)?, &parts).await?.close().await;
                Ok(writeln!(io::stdout(), "the database is up to date")?)
            }
            Command::Sweep { file, dry_run } => sweep::run(&load(&file, env)?, &parts, dry_run).await,
            Command::Health(file) => health::ask(&load(&file, env)?.sidecar_listen).await,
            Command::ExtractText { .. } => Err(CommandError::Refused("this command takes no runtime".to_owned())),
        }
    })
}

fn load(file: &ConfigFile, env: &Environment) -> Result<Config, CommandError> {
    Config::load(&file.config, env).map_err(CommandError::Config)
}

async fn serve(config: &Config, parts: Parts) -> Result<(), CommandError> {
    let stop = begin(config)?;
    let app = App::build(config, parts).await?;
    tracing::info!(address = %app.address(), "serving");
    app.run(stop).await;
    Ok(())
}

async fn sandboxd(config: &Config, parts: Parts) -> Result<(), CommandError> {
    let stop = begin(config)?;
    let daemon = SandboxDaemon::build(config, parts).await?;
    tracing::info!(address = %daemon.address(), "serving the sandbox by contract v1");
    daemon.run(stop).await;
    Ok(())
}

/// What comes before anything is built: a signal during the start must stop it too, and not kill it half-way. Gives what to
/// wait for.
fn begin(config: &Config) -> Result<impl Future<Output = ()>, CommandError> {
    telemetry::start_log(&config.log);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    raise_open_files();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// A code turn holds three descriptors, and the soft limit is often 1024. Sandboxes have a limit of their own.
fn raise_open_files() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit on open files stays as it is");
    }
}

fn plugin_config(config: &Config, parts: &Parts) -> Result<String, CommandError> {
    let secret = app::hop_secret(config, &*parts.ids)?;
    Ok(serde_json::to_string(&config.filter_config(&secret)).map_err(io::Error::other)? + "\n")
}

fn envoy_config(config: &Config, filter: &Path, parts: &Parts) -> Result<String, CommandError> {
    if config.model_url.is_some() {
        let text = "model_url is set, so Envoy and its routes are your mesh's: add the filter and two routes as \
                    envoy/README.md says; --plugin-config prints the filter's configuration";
        return Err(CommandError::Refused(text.to_owned()));
    }
    let filter = std::path::absolute(filter)?;
    if !filter.is_file() {
        let text =
            format!("there is no filter at {}: build it with `make filter`, name it with --filter", filter.display());
        return Err(CommandError::Refused(text));
    }
    let Some(ca_bundle) = envoy_config::system_ca_bundle() else {
        let text = "this system has no bundle of certificates: install the package `ca-certificates`".to_owned();
        return Err(CommandError::Refused(text));
    };
    let secret = app::hop_secret(config, &*parts.ids)?;
    let around = Surroundings { hop_secret: &secret, wasm: &filter, ca_bundle: &ca_bundle };
    Ok(envoy_config::render(config, around)?)
}

fn list(problems: &[ConfigProblem]) -> String {
    let lines: Vec<_> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
    lines.concat()
}
