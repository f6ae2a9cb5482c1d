//! Ordo, embeddable.
