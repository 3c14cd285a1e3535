"""Random conversations with a real Kafka broker, and with this coordinator: answer by answer."""
