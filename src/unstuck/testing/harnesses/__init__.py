"""What the conformance suite needs to know about a store: its harness, a file for each of ours."""
