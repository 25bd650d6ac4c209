"""What a program and its NIC say to each other: control protocol, work queue, registered regions."""
