//! Workloads by name, with their options by name.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use workloads::placement::{COUNT_MAX, PARTITIONS_MAX};
use workloads::synthetic::Contention;
use workloads::tpcc::{Mix, Scale};
use workloads::{Bank, Synthetic, Tpcc, Vacation, Workload, Ycsb, vacation, ycsb};

/// Each workload with the options that it takes.
pub const WORKLOADS: [(&str, &[&str]); 6] = [
    ("tpcc", &["warehouses", "update-percent", "abort-percent", "remote", "scale"]),
    (
        "new-order-payment",
        &["warehouses", "payment-percent", "multi-partition-percent", "abort-percent", "remote", "scale"],
    ),
    ("synthetic", &["contention", "dependent-percent", "multi-partition-percent", "keys"]),
    (
        "ycsb",
        &[
            "keys",
            "operations",
            "read-percent",
            "theta",
            "abort-percent",
            "multi-partition-percent",
            "partitions-per-transaction",
        ],
    ),
    ("bank", &["accounts", "read-percent"]),
    ("vacation", &["relations", "queries", "queried-percent", "user-percent"]),
];

/// TPC-C for quick tries: not the specification's, so its figures compare with none.
const SCALE_SMALL: Scale = Scale { items: 1_000, customers: 120 };

/// A workload by name, with the options that were given.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The workload.
    pub workload: String,
    options: BTreeMap<String, String>,
}

impl Settings {
    /// A workload without options.
    pub fn new(workload: impl Into<String>) -> Settings {
        Settings { workload: workload.into(), options: BTreeMap::new() }
    }

    /// Gives an option, as if written `--name value`.
    pub fn set(&mut self, name: &str, value: impl Display) {
        self.options.insert(name.to_owned(), value.to_string());
    }

    /// What reports show.
    pub fn shown(&self) -> BTreeMap<String, String> {
        self.options.clone()
    }

    /// Builds the workload, or says which name or option is wrong.
    pub fn workload(&self) -> Result<Arc<dyn Workload>> {
        self.spread(1)
    }

    /// Builds the workload over so many partitions, each of which has the records that the options say.
    pub fn spread(&self, partitions: u16) -> Result<Arc<dyn Workload>> {
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            bail!("{partitions} partitions: 1 to {PARTITIONS_MAX}");
        }
        if partitions > 1 && matches!(self.workload.as_str(), "bank" | "vacation") {
            bail!("{} has one partition", self.workload);
        }
        let names: Vec<&str> = WORKLOADS.iter().map(|(name, _)| *name).collect();
        let Some((_, known)) = WORKLOADS.iter().find(|(name, _)| *name == self.workload) else {
            bail!("unknown workload '{}': choose one of {}", self.workload, names.join(", "));
        };
        if let Some(option) = self.options.keys().find(|option| !known.contains(&option.as_str())) {
            let of: Vec<&str> = WORKLOADS
                .iter()
                .filter(|(_, options)| options.contains(&option.as_str()))
                .map(|(name, _)| *name)
                .collect();
            bail!("--{option} is an option of {}, not of {}", of.join(", "), self.workload);
        }
        match self.workload.as_str() {
            "bank" => self.bank(),
            "vacation" => self.vacation(),
            "synthetic" => self.synthetic(partitions),
            "ycsb" => self.ycsb(partitions),
            "new-order-payment" => {
                let elsewhere = self.options.contains_key("multi-partition-percent");
                let elsewhere = elsewhere.then(|| self.percent("multi-partition-percent", 0)).transpose()?;
                let payment_percent = self.percent("payment-percent", 50)?;
                self.tpcc(Mix::NewOrderPayment { payment_percent, elsewhere_percent: elsewhere }, partitions)
            }
            _ => {
                let update_percent = self.percent("update-percent", 90)?;
                if update_percent < 4 {
                    bail!(
                        "--update-percent {update_percent}: at least 4, because Delivery has 4 % of all mixes"
                    );
                }
                self.tpcc(Mix::Full { update_percent }, partitions)
            }
        }
    }

    fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        match self.options.get(name) {
            Some(text) => text.parse().ok().with_context(|| format!("--{name} {text}: not a number")),
            None => Ok(default),
        }
    }

    fn percent(&self, name: &str, default: u32) -> Result<u32> {
        let percent = self.get(name, default)?;
        if percent > 100 {
            bail!("--{name} {percent}: at most 100");
        }
        Ok(percent)
    }

    /// A number that must not be smaller than `least`.
    fn at_least(&self, name: &str, default: u32, least: u32) -> Result<u32> {
        let number = self.get(name, default)?;
        if number < least {
            bail!("--{name} {number}: at least {least}");
        }
        Ok(number)
    }

    fn bank(&self) -> Result<Arc<dyn Workload>> {
        let default = Bank::default();
        Ok(Arc::new(Bank {
            accounts: self.at_least("accounts", default.accounts, 2)?,
            audit_percent: self.percent("read-percent", default.audit_percent)?,
            ..default
        }))
    }

    fn vacation(&self) -> Result<Arc<dyn Workload>> {
        let default = vacation::Options::default();
        let options = vacation::Options {
            relations: self.get("relations", default.relations)?,
            queries: self.get("queries", default.queries)?,
            queried_percent: self.percent("queried-percent", default.queried_percent)?,
            user_percent: self.percent("user-percent", default.user_percent)?,
        };
        let vacation = Vacation::new(options).map_err(|reason| anyhow::anyhow!("vacation: {reason}"))?;
        Ok(Arc::new(vacation))
    }

    fn tpcc(&self, mix: Mix, partitions: u16) -> Result<Arc<dyn Workload>> {
        let remote = match self.options.get("remote").map_or("on", String::as_str) {
            "on" => true,
            "off" => false,
            other => bail!("--remote {other}: on or off"),
        };
        let scale = match self.options.get("scale").map_or("full", String::as_str) {
            "full" => Scale::SPECIFIED,
            "small" => SCALE_SMALL,
            other => bail!("--scale {other}: full (as specified) or small (for quick tries)"),
        };
        let warehouses = self.at_least("warehouses", Tpcc::default().warehouses, 1)?;
        Ok(Arc::new(Tpcc {
            warehouses: warehouses.saturating_mul(u32::from(partitions)).min(COUNT_MAX),
            mix,
            remote,
            scale,
            partitions,
            rollback_percent: self.percent("abort-percent", Tpcc::default().rollback_percent)?,
        }))
    }

    fn ycsb(&self, partitions: u16) -> Result<Arc<dyn Workload>> {
        let default = ycsb::Options::default();
        let has_aborts = self.options.contains_key("abort-percent");
        let options = ycsb::Options {
            keys: self.get("keys", default.keys)?,
            operations: self.get("operations", default.operations)?,
            read_percent: self.percent("read-percent", default.read_percent)?,
            theta: self.get("theta", default.theta)?,
            partitions,
            multi_partition_percent: self
                .percent("multi-partition-percent", default.multi_partition_percent)?,
            abort_percent: has_aborts.then(|| self.percent("abort-percent", 0)).transpose()?,
            partitions_each: self.get("partitions-per-transaction", default.partitions_each)?,
            ..default
        };
        let ycsb = Ycsb::new(options).map_err(|reason| anyhow::anyhow!("ycsb: {reason}"))?;
        Ok(Arc::new(ycsb))
    }

    fn synthetic(&self, partitions: u16) -> Result<Arc<dyn Workload>> {
        let contention = match self.options.get("contention").map_or("low", String::as_str) {
            "low" => Contention::Low,
            "medium" => Contention::Medium,
            other => bail!("--contention {other}: low or medium"),
        };
        let mut synthetic = Synthetic::new(contention, self.percent("dependent-percent", 0)?);
        synthetic.partitions = partitions;
        synthetic.multi_partition_percent = self.percent("multi-partition-percent", 0)?;
        // The paper's partition has a million keys, of which the index keys are a part.
        synthetic.keys =
            self.at_least("keys", synthetic.keys, synthetic.index_keys + 1_000).with_context(|| {
                format!(
                    "{} of the keys are the index of this contention, and transactions need others beside \
                     them",
                    synthetic.index_keys
                )
            })?;
        if synthetic.keys > COUNT_MAX {
            bail!("--keys {}: at most {COUNT_MAX}", synthetic.keys);
        }
        Ok(Arc::new(synthetic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(workload: &str, options: &[(&str, &str)], expected: &str) {
        let mut settings = Settings::new(workload);
        for (name, value) in options {
            settings.set(name, value);
        }
        match settings.workload() {
            Ok(workload) => assert_eq!(expected, workload.name()),
            Err(error) => assert!(error.to_string().contains(expected), "{error} does not say '{expected}'"),
        }
    }

    #[test]
    fn options_belong_to_workloads() {
        check("bank", &[("accounts", "100")], "bank");
        check("synthetic", &[("contention", "medium"), ("dependent-percent", "50")], "synthetic");
        check("tcpp", &[], "choose one of tpcc, new-order-payment");
        let mix = [("payment-percent", "100"), ("multi-partition-percent", "15")];
        check("new-order-payment", &mix, "new-order-payment");
        check("tpcc", &mix, "--multi-partition-percent is an option of new-order-payment");
        check("new-order-payment", &[("payment-percent", "101")], "at most 100");
        check("bank", &[("contention", "low")], "--contention is an option of synthetic, not of bank");
        check("vacation", &[("relations", "100"), ("queries", "2")], "vacation");
        check("vacation", &[("queries", "0")], "vacation: 0 queries: choose from 1 to 1000");
        check("vacation", &[("user-percent", "101")], "at most 100");
        check("vacation", &[("accounts", "100")], "--accounts is an option of bank, not of vacation");
        check("bank", &[("accounts", "many")], "--accounts many: not a number");
        check("synthetic", &[("dependent-percent", "101")], "at most 100");
        check("synthetic", &[("contention", "high")], "low or medium");
        check("synthetic", &[("keys", "10000")], "50000 of the keys are the index");
    }
}
